/** What the form asks for, as the body of a chat request. */

import { JsonFault, readJson } from "./json_places.js";

/** The form cannot be sent: why, and [from, to) of the constraint's text where it is at fault. */
export class FormFault extends Error {
  constructor(message, place = null) {
    super(message);
    this.place = place;
  }
}

/**
 * Read the form's fields: {kind, value, places, prompt, sampling, model}; throws FormFault.
 *
 * `value` is the constraint, `sampling` holds what is not left to the model, by the API's names.
 */
export function readTask(fields) {
  if (!fields.prompt.trim()) throw new FormFault("The prompt is empty.");
  return {
    kind: fields.kind,
    ...readConstraint(fields.kind, fields.constraint),
    prompt: fields.prompt,
    sampling: readSampling(fields),
    model: fields.model,
  };
}

function readConstraint(kind, text) {
  if (kind === "text") return { value: null, places: new Map() };
  if (!text.trim()) throw new FormFault("The constraint is empty.", [0, 1]);
  if (kind === "choice") {
    const lines = text.split("\n").filter((line) => line.trim());
    return { value: lines, places: new Map() };
  }
  if (kind !== "schema" && kind !== "tools") return { value: text, places: new Map() };
  try {
    return readJson(text);
  } catch (error) {
    if (!(error instanceof JsonFault)) throw error;
    const line = text.slice(0, error.at).split("\n").length;
    const message = `Line ${line} is not JSON: ${error.message}.`;
    throw new FormFault(message, [error.at, error.at + 1]);
  }
}

function readSampling({ temperature, maxTokens, seed, isSpeculative }) {
  const sampling = {
    temperature: readNumber("Temperature", temperature, 0, 2),
    max_tokens: readNumber("Max tokens", maxTokens, 1),
    seed: readNumber("Seed", seed),
    speculative: isSpeculative ? undefined : false,
  };
  return JSON.parse(JSON.stringify(sampling)); // without what is undefined
}

function readNumber(name, text, min = -Infinity, max = Infinity) {
  if (text.trim() === "") return undefined;
  const number = Number(text);
  if (!(number >= min && number <= max)) {
    const range = max < Infinity ? `from ${min} to ${max}` : `of at least ${min}`;
    throw new FormFault(`${name} must be a number ${min > -Infinity ? range : ""}.`.replace(" .", "."));
  }
  return number;
}

/** The body of POST /v1/chat/completions. */
export function makeBody({ kind, value, prompt, sampling, model }) {
  return {
    ...(model && { model }),
    messages: [{ role: "user", content: prompt }],
    ...sampling,
    ...constraintFields(kind, value),
  };
}

function constraintFields(kind, value) {
  switch (kind) {
    case "schema":
      return {
        response_format: { type: "json_schema", json_schema: { name: "answer", schema: value } },
      };
    case "tools":
      return { tools: value, tool_choice: "required", parallel_tool_calls: false };
    case "text":
      return {};
    default:
      return { structured_outputs: { [kind]: value } };
  }
}
