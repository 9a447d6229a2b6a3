/** The playground: what is asked on the left, what is written on the right. */

import { Announcer } from "./announcer.js";
import { Detail, make } from "./detail.js";
import { Editor } from "./editor.js";
import { EXAMPLES, KINDS } from "./examples.js";
import { findPlace } from "./json_places.js";
import { FormFault, makeBody, readTask } from "./request.js";
import { toCurl, toOpenAi, toPython } from "./snippets.js";
import { ApiFault, fetchModel, streamChat } from "./stream.js";
import { drawOrigins, drawStats } from "./summary.js";
import { Tokens } from "./tokens.js";

const NUM_ALTERNATIVES = 5;
const BASE = new URL("v1/", document.baseURI);
const $ = (id) => document.getElementById(id);

const editor = new Editor($("constraint"), $("marks"));
const tokens = new Tokens($("tokens"), new Detail($("detail")));
const announcer = new Announcer($("live"));
let model = "";
const isNarrow = () => matchMedia("(max-width: 860px)").matches;
let running = null; // the AbortController of the request that runs

/* What is asked */

function showKind(kind) {
  const { label, hint } = KINDS[kind];
  $("constraint-field").hidden = kind === "text";
  $("constraint-label").textContent = label;
  $("constraint-hint").textContent = hint;
  $("constraint").rows = KINDS[kind].isJson ? 12 : 5;
}

function showExample(example) {
  $("kind").value = example.kind;
  editor.text = example.constraint;
  $("prompt").value = example.prompt;
  showKind(example.kind);
  for (const button of $("examples").children) {
    button.setAttribute("aria-pressed", button.textContent === example.name);
  }
  hideError();
  showSnippet();
}

function readForm() {
  return readTask({
    kind: $("kind").value,
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

function showError(title, message, pointer = null, place = null) {
  $("error-title").textContent = title;
  $("error-message").textContent = message;
  $("error-place-line").hidden = !place;
  $("error-place").textContent = pointer ?? "";
  $("error-show").onclick = () => editor.select(...place);
  $("error").hidden = false;
  if (place) editor.mark(...place);
  if (isNarrow()) $("error").scrollIntoView({ block: "center" });
  showStatus("failed", tokens.count ? `Failed after ${count(tokens.count)}` : "Failed");
}

function explain(error, task) {
  if (error instanceof FormFault) {
    showError("This cannot be sent yet", error.message, null, error.place);
  } else if (error instanceof ApiFault) {
    explainApiFault(error, task);
  } else {
    showError("The server was not reached", `${error.message}. Is it still running?`);
  }
}

function explainApiFault({ status, message, error }, task) {
  if (status === 401) {
    $("key-field").hidden = false;
    showError("This server asks for an API key", "Enter it in the field above Run.");
    return;
  }
  if (error.code === "invalid_json_schema") {
    explainConstraintFault(message, task);
    return;
  }
  const titles = { 400: "The request was refused", 422: "What was written does not conform" };
  showError(titles[status] ?? "The server could not answer", message);
}

/** The message names the place by its JSON pointer, or of a regex or grammar by line and column. */
function explainConstraintFault(message, task) {
  const title = "The constraint was refused";
  const [before, pointer] = message.match(/^.*?(#(?:\/[^\s:]*)?): /) ?? [];
  const [, line, column] = message.match(/^line (\d+), column (\d+): /) ?? [];
  if (pointer) {
    const place = findPlace(task.places, pointer);
    showError(title, message.slice(before.length), pointer, place);
  } else if (line) {
    const lines = editor.text.split("\n");
    const from = lines.slice(0, line - 1).join("\n").length + (line > 1) + Number(column) - 1;
    showError(title, message, null, [from, from + 1]);
  } else {
    showError(title, message);
  }
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
let language = "curl";

function showSnippet() {
  let text;
  try {
    text = WRITERS[language](readForm(), BASE, Boolean($("key").value));
  } catch (error) {
    if (!(error instanceof FormFault)) throw error;
    text = `# ${error.message}`;
  }
  $("snippet-code").textContent = text;
}

function chooseLanguage(tab) {
  language = tab.id.replace("tab-", "");
  for (const other of $("tabs").children) {
    other.setAttribute("aria-selected", other === tab);
    other.tabIndex = other === tab ? 0 : -1;
  }
  $("snippet").setAttribute("aria-labelledby", tab.id);
  showSnippet();
}

function goThroughTabs(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const tabs = [...$("tabs").children];
  const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
  chooseLanguage(next);
  next.focus();
}

async function copy() {
  try {
    await navigator.clipboard.writeText($("snippet-code").textContent);
    $("copy").textContent = "Copied";
  } catch {
    getSelection().selectAllChildren($("snippet-code")); // not allowed here: it can be taken by hand
    $("copy").textContent = "Selected";
  }
  setTimeout(() => ($("copy").textContent = "Copy"), 1500);
}

async function askForModel() {
  try {
    model = await fetchModel(BASE, $("key").value);
    $("model").textContent = model;
    $("model").hidden = false;
    showSnippet();
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
  const example = EXAMPLES.find(({ kind }) => kind === $("kind").value);
  editor.text = example.constraint;
  hideError();
  showKind(example.kind);
});
$("form").addEventListener("input", () => {
  for (const button of $("examples").children) button.setAttribute("aria-pressed", false);
  showSnippet();
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
$("tabs").addEventListener("click", ({ target }) => target.role === "tab" && chooseLanguage(target));
$("tabs").addEventListener("keydown", goThroughTabs);
$("copy").addEventListener("click", copy);

clearOutput(true);
$("tokens").dataset.empty = "What the model writes appears here, token by token. Press Run.";
showExample(EXAMPLES[0]);
askForModel();
