/** The same request as code to copy. */

import { makeBody } from "./request.js";

const indented = (text, blanks) => text.replaceAll("\n", `\n${" ".repeat(blanks)}`);

/** As a curl command; `base` is the URL of /v1/. */
export function toCurl(task, base, hasKey) {
  const body = JSON.stringify(makeBody(task), null, 2).replaceAll("'", `'\\''`);
  return [
    `curl ${new URL("chat/completions", base)}`,
    '-H "content-type: application/json"',
    ...(hasKey ? ['-H "authorization: Bearer $STRUCTSPEC_API_KEY"'] : []),
    `-d '${body}'`,
  ].join(" \\\n  ");
}

/** In Python with structspec's own client. */
export function toPython(task, base, hasKey) {
  const imports = task.kind === "tools" ? "Client, Tools" : "Client";
  const [setUp, argument] = CONSTRAINTS[task.kind]?.(task.value) ?? [null, null];
  const options = Object.entries(task.sampling).map(([name, value]) => `${name}=${literal(value)}`);
  const args = [literal(task.prompt), ...(argument ? [argument] : []), ...options];
  const key = hasKey ? " # the key: STRUCTSPEC_API_KEY" : "";
  return [
    `from structspec import ${imports}`,
    "",
    ...(setUp ? [setUp, ""] : []),
    `with Client(${literal(new URL("..", base).href.replace(/\/$/, ""))}) as client:${key && ` ${key}`}`,
    "    answer = client.generate(",
    ...args.map((arg) => `        ${indented(arg, 8)},`),
    "    )",
    "print(answer)",
  ].join("\n");
}

const CONSTRAINTS = {
  schema: (value) => [`schema = ${literal(value)}`, "schema=schema"],
  tools: (value) => [
    `tools = ${literal(value)}`,
    'grammar=Tools(tools, choice="required", parallel=False)',
  ],
  regex: (value) => [null, `regex=${literal(value)}`],
  choice: (value) => [null, `choices=${literal(value)}`],
  grammar: (value) => [null, `grammar=${literal(value)}`],
};

/** In Python with OpenAI's client. */
export function toOpenAi(task, base, hasKey) {
  const { structured_outputs, speculative, ...fields } = makeBody(task);
  const extra = JSON.parse(JSON.stringify({ structured_outputs, speculative }));
  if (Object.keys(extra).length) fields.extra_body = extra;
  const key = hasKey ? 'os.environ["STRUCTSPEC_API_KEY"]' : '"none is asked for"';
  const url = literal(base.href.replace(/\/$/, ""));
  return [
    ...(hasKey ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${url}, api_key=${key})`,
    "completion = client.chat.completions.create(",
    ...Object.entries(fields).map(([name, value]) => `    ${name}=${indented(literal(value), 4)},`),
    ")",
    task.kind === "tools"
      ? "print(completion.choices[0].message.tool_calls[0].function)"
      : "print(completion.choices[0].message.content)",
  ].join("\n");
}

/** A value as Python writes it. */
export function literal(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const items = Array.isArray(value)
    ? value.map(literal)
    : Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${literal(item)}`);
  const line = `${open}${items.join(", ")}${close}`;
  if (line.length <= 60 && !line.includes("\n")) return line;
  return `${open}\n${items.map((item) => `    ${indented(item, 4)},`).join("\n")}\n${close}`;
}
