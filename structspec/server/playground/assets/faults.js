/** What went wrong, in words for whoever reads the page. */

import { findPlace } from "./json_places.js";
import { FormFault } from "./request.js";
import { ApiFault } from "./stream.js";

const TITLES = {
  400: "The request was refused",
  422: "What was written does not conform",
  429: "The server has too much to do",
};

/**
 * {title, message, pointer, place, asksForKey}: `pointer` and `place` [from, to) where it is the
 * constraint that is at fault; its text is `text`, and `task` is what was read of it.
 */
export function describeFault(error, text, task) {
  if (error instanceof FormFault) {
    return { title: "This cannot be sent yet", message: error.message, place: error.place };
  }
  if (!(error instanceof ApiFault)) {
    const message = `${error.message}. Is it still running?`;
    return { title: "The server was not reached", message };
  }
  if (error.status === 401) {
    const title = "This server asks for an API key";
    return { title, message: "Enter it in the field above Run.", asksForKey: true };
  }
  if (error.error.code === "invalid_json_schema") {
    return { title: "The constraint was refused", ...findFault(error.message, text, task.places) };
  }
  return { title: TITLES[error.status] ?? "The server could not answer", message: error.message };
}

/** The message names the place by its JSON pointer, or of a regex or grammar by line and column. */
function findFault(message, text, places) {
  const pointer = findPointer(message, places);
  if (pointer !== null) {
    const rest = message.slice(message.indexOf(`${pointer}: `) + pointer.length + 2);
    return { message: rest, pointer, place: findPlace(places, pointer) };
  }
  const [, line, column] = message.match(/^line (\d+), column (\d+): /) ?? [];
  if (!line) return { message };
  const before = text.split("\n").slice(0, line - 1).map((one) => one.length + 1);
  const from = before.reduce((sum, length) => sum + length, Number(column) - 1);
  return { message, place: [from, from + 1] };
}

/** Keys may hold blanks and colons: a pointer to something that is there is looked for first. */
function findPointer(message, places) {
  const known = [...places.keys()].map((path) => `#${path}`);
  const named = known.filter((pointer) => message.includes(`${pointer}: `));
  if (named.length) return named.reduce((a, b) => (b.length > a.length ? b : a));
  return message.match(/#(?:\/[^\s:]*)?(?=: )/)?.[0] ?? null;
}
