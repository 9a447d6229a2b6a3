/** The playground: what is asked on the left, what is written on the right. */

import { Announcer } from "./announcer.js";
import { CodePanel } from "./code_panel.js";
import { Detail, make } from "./detail.js";
import { Editor } from "./editor.js";
import { EXAMPLES, KINDS } from "./examples.js";
import { describeFault } from "./faults.js";
import { FormFault, makeBody, readTask } from "./request.js";
import { toCurl, toOpenAi, toPython } from "./snippets.js";
import { fetchModel, streamChat } from "./stream.js";
import { drawOrigins, drawStats } from "./summary.js";
import { Tokens } from "./tokens.js";

const NUM_ALTERNATIVES = 5;
const BASE = new URL("v1/", document.baseURI);
const $ = (id) => document.getElementById(id);

const editor = new Editor($("constraint"), $("marks"));
const tokens = new Tokens($("tokens"), new Detail($("detail")));
const announcer = new Announcer($("live"));
const isNarrow = () => matchMedia("(max-width: 860px)").matches;
const constraints = new Map(); // what was written of each kind, for who comes back to it
let kind = ""; // the one that the editor shows
let model = "";
let running = null; // the AbortController of the request that runs

/* What is asked */

function showConstraint(of, text) {
  if (kind) constraints.set(kind, editor.text);
  kind = of;
  const { label, hint } = KINDS[kind];
  editor.text = text;
  $("constraint-field").hidden = kind === "text";
  $("constraint-label").textContent = label;
  $("constraint-hint").textContent = hint;
  $("constraint").rows = KINDS[kind].isJson ? 12 : 5;
}

function showExample(example) {
  $("kind").value = example.kind;
  $("prompt").value = example.prompt;
  showConstraint(example.kind, example.constraint);
  for (const button of $("examples").children) {
    button.setAttribute("aria-pressed", button.textContent === example.name);
  }
  hideError();
  code.update();
}

function readForm() {
  return readTask({
    kind,
    constraint: editor.text,
    prompt: $("prompt").value,
    temperature: $("temperature").value,
    maxTokens: $("max-tokens").value,
    seed: $("seed").value,
    isSpeculative: $("speculative").checked,
    model,
  });
}

/* Errors */

function hideError() {
  $("error").hidden = true;
  editor.clear();
}

function explain(error, task) {
  const { title, message, pointer, place, asksForKey } = describeFault(error, editor.text, task);
  $("error-title").textContent = title;
  $("error-message").textContent = message;
  $("error-place-line").hidden = !place;
  $("error-place").textContent = pointer ?? "";
  $("error-show").onclick = () => editor.select(...place);
  $("error").hidden = false;
  if (place) editor.mark(...place);
  if (asksForKey) $("key-field").hidden = false;
  if (isNarrow()) $("error").scrollIntoView({ block: "center" });
  showStatus("failed", tokens.count ? `Failed after ${count(tokens.count)}` : "Failed");
}

/* What is written */

function showStatus(state, text) {
  $("status").dataset.state = state;
  $("status").textContent = text;
}

function showRunning(isRunning) {
  const [shown, hidden] = isRunning ? [$("stop"), $("run")] : [$("run"), $("stop")];
  const hadFocus = document.activeElement === hidden;
  shown.hidden = false;
  hidden.hidden = true;
  if (hadFocus) shown.focus(); // the keyboard stays where it was
}

const count = (number) => `${number} token${number === 1 ? "" : "s"}`;

function clearOutput(isJson) {
  tokens.clear(isJson);
  $("tokens").dataset.empty = "";
  $("layouts").hidden = !isJson;
  $("reasoning").hidden = true;
  $("reasoning-text").textContent = "";
  drawOrigins($("bar"), $("legend"), {});
  drawStats($("stats"), null, 0);
}

async function run() {
  if (running) return;
  hideError();
  let task;
  try {
    task = readForm();
  } catch (error) {
    explain(error, null);
    return;
  }
  running = new AbortController();
  showRunning(true);
  clearOutput(Boolean(KINDS[task.kind].isJson));
  showStatus("writing", "Waiting for the first token");
  if (isNarrow()) $("output").scrollIntoView();
  try {
    await write(task, running.signal);
  } catch (error) {
    if (error.name === "AbortError") showEnd("cut", `Stopped after ${count(tokens.count)}`);
    else explain(error, task);
  } finally {
    running = null;
    showRunning(false);
  }
}

async function write(task, signal) {
  const body = { ...makeBody(task), token_details: NUM_ALTERNATIVES };
  let end = null;
  for await (const chunk of streamChat(BASE, body, $("key").value, signal)) {
    const [choice] = chunk.choices;
    if (!choice) continue;
    if (choice.delta.reasoning) showReasoning(choice.delta.reasoning);
    if (choice.structspec?.tokens?.length) showTokens(choice.structspec.tokens);
    if (choice.structspec?.stats) drawStats($("stats"), choice.structspec.stats, tokens.count);
    end = choice.finish_reason ?? end;
  }
  if (end === "length") showEnd("cut", `Cut off after ${count(tokens.count)}: raise max tokens`);
  else showEnd("done", `${task.kind === "text" ? "Done" : "Done, valid"}: ${count(tokens.count)}`);
}

function showReasoning(text) {
  $("reasoning").hidden = false;
  $("reasoning-text").append(text);
}

function showTokens(entries) {
  tokens.add(entries);
  drawOrigins($("bar"), $("legend"), tokens.counts);
  showStatus("writing", `Writing: ${count(tokens.count)}`);
  announcer.grow(tokens.text);
}

function showEnd(state, text) {
  showStatus(state, text);
  announcer.finish(tokens.text, `${text}.`);
}

/* The same in code */

const WRITERS = { curl: toCurl, python: toPython, openai: toOpenAi };
const code = new CodePanel($("tabs"), $("snippet"), $("copy"), (language) => {
  try {
    return WRITERS[language](readForm(), BASE, Boolean($("key").value));
  } catch (error) {
    if (!(error instanceof FormFault)) throw error;
    return `# ${error.message}`;
  }
});

async function askForModel() {
  try {
    model = await fetchModel(BASE, $("key").value);
    $("model").textContent = model;
    $("model").hidden = false;
    hideError();
    code.update();
  } catch (error) {
    explain(error, null);
  }
}

/* Wires */

for (const example of EXAMPLES) {
  const button = make("button", "", example.name);
  button.type = "button";
  button.addEventListener("click", () => showExample(example));
  $("examples").append(button);
}
$("kind").addEventListener("change", () => {
  const wanted = $("kind").value;
  const example = EXAMPLES.find((one) => one.kind === wanted);
  showConstraint(wanted, constraints.get(wanted) ?? example.constraint);
  hideError();
});
$("form").addEventListener("input", () => {
  for (const button of $("examples").children) button.setAttribute("aria-pressed", false);
  code.update();
});
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
$("stop").addEventListener("click", () => running?.abort());
$("key").addEventListener("change", askForModel);
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
});
$("layouts").addEventListener("click", ({ target }) => {
  if (!target.dataset.layout) return;
  tokens.isIndented = target.dataset.layout === "indented";
  for (const button of $("layouts").children) {
    button.setAttribute("aria-pressed", button === target);
  }
});

clearOutput(true);
$("tokens").dataset.empty = "What the model writes appears here, token by token. Press Run.";
showExample(EXAMPLES[0]);
askForModel();
