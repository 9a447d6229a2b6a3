/** What is known of one token, beside it. */

import { visible } from "./tokens.js";

export const ORIGINS = {
  forced: "The grammar leaves no choice about this text, only about tokens to write it with.",
  drafted: "A guess that the model took.",
  recovered: "Drawn by the model where a draft was rejected.",
  sampled: "Drawn by the model where nothing was drafted.",
};

const GUESSES = {
  ngram: "A guess, looked up in the prompt and the output, that the model took.",
  suffix: "A guess, from what earlier requests wrote, that the model took.",
  prediction: "A guess, from the request's prediction, that the model took.",
};

const percent = new Intl.NumberFormat("en", {
  style: "percent",
  maximumSignificantDigits: 3,
});
const share = (logprob) => {
  const probability = Math.exp(logprob);
  if (logprob < 0 && probability > 0.9995) return "> 99.9%";
  return probability < 0.0001 ? "< 0.01%" : percent.format(probability);
};

export class Detail {
  #box;

  constructor(box) {
    this.#box = box;
  }

  /** Show it at the right of the text, or where that is wide, below or above the token's element. */
  show(token, element) {
    this.#box.replaceChildren(...describe(token));
    this.#box.hidden = false;
    const at = element.getClientRects()[0];
    const { offsetWidth: width, offsetHeight: height } = this.#box;
    const rightmost = element.parentElement.getBoundingClientRect().right - width - 12;
    let left = Math.max(8, Math.min(at.left, rightmost));
    let top = at.bottom + 7;
    if (rightmost > at.right + 12) {
      left = rightmost;
      top = Math.max(8, Math.min(at.top - 14, innerHeight - height - 8));
    } else if (top + height > innerHeight && at.top > height) {
      top = at.top - height - 7;
    }
    this.#box.style.top = `${top + scrollY}px`;
    this.#box.style.left = `${left + scrollX}px`;
    if (getComputedStyle(this.#box).position === "fixed") this.#uncover(at);
  }

  /** On a phone it stands at the bottom: what it is about must not be behind it. */
  #uncover(at) {
    const hidden = at.bottom + 10 - this.#box.getBoundingClientRect().top;
    if (hidden > 0) scrollBy(0, hidden);
  }

  hide() {
    this.#box.hidden = true;
  }
}

function describe(token) {
  const head = make("p");
  head.append(
    make("span", `badge ${token.origin}`, token.origin),
    " ",
    make("span", "name", visible(token.text) || "(part of a character)"),
  );
  const origin = GUESSES[token.drafter] ?? ORIGINS[token.origin];
  return [head, make("p", "", origin), likelihood(token), ...alternatives(token)];
}

function likelihood({ logprob, masked_logprob: masked }) {
  const line = make("p");
  line.append(
    make("strong", "", share(masked)),
    " among what is allowed; to the model alone ",
    make("strong", "", share(logprob)),
  );
  return line;
}

function alternatives({ top, bytes }) {
  if (top.length === 1) return [make("p", "quiet", "Nothing else was allowed here.")];
  if (!top.length) return [];
  const list = make("ul", "alternatives");
  for (const other of top) {
    const isOwn = String(other.bytes) === String(bytes);
    const item = make("li");
    const fill = make("span", "fill");
    fill.style.width = `${100 * Math.exp(other.logprob)}%`;
    const track = make("span", "track");
    track.append(fill);
    item.append(
      make("span", isOwn ? "text is-own" : "text", visible(other.token) || "(end)"),
      track,
      make("span", isOwn ? "share is-own" : "share", share(other.logprob)),
    );
    list.append(item);
  }
  return [make("p", "quiet", `The ${top.length} likeliest that were allowed:`), list];
}

/** An element with a class and a text. */
export function make(name, className = "", text = "") {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}
