/** The written tokens, coloured by where they came from, and gone through with the arrow keys. */

import { Layout } from "./layout.js";

/** Blanks and line ends as signs. */
export const visible = (text) =>
  text.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥");

export class Tokens {
  #box;
  #detail;
  #tokens = [];
  #layout = new Layout();
  #isIndented = true;
  #isJson = true;
  #decoder = new TextDecoder();
  #current = 0; // the one that the keyboard is at

  /** `box` holds them; `detail` is told to show what is known of one, or to hide. */
  constructor(box, detail) {
    this.#box = box;
    this.#detail = detail;
    box.addEventListener("pointerover", (event) => this.#point(event));
    box.addEventListener("pointerleave", () => this.#leave());
    box.addEventListener("click", (event) => this.#focusOn(indexOf(event.target)));
    box.addEventListener("focusin", (event) => this.#show(indexOf(event.target)));
    box.addEventListener("focusout", () => this.#hide());
    box.addEventListener("keydown", (event) => this.#key(event));
  }

  get count() {
    return this.#tokens.length;
  }

  get text() {
    return this.#tokens.map((token) => token.text).join("");
  }

  /** How many came from where, by origin. */
  get counts() {
    const counts = {};
    for (const { origin } of this.#tokens) counts[origin] = (counts[origin] ?? 0) + 1;
    return counts;
  }

  clear(isJson) {
    this.#isJson = isJson;
    this.#tokens = [];
    this.#decoder = new TextDecoder();
    this.#current = 0;
    this.#redraw();
  }

  /** Add tokens as the server tells of them; a character comes with the token that ends it. */
  add(entries) {
    const isAtEnd = this.#box.scrollHeight - this.#box.scrollTop - this.#box.clientHeight < 30;
    for (const entry of entries) {
      const text = this.#decoder.decode(new Uint8Array(entry.bytes), { stream: true });
      const token = { ...entry, text };
      this.#tokens.push(token);
      this.#draw(token, this.#tokens.length - 1);
    }
    if (isAtEnd) this.#box.scrollTop = this.#box.scrollHeight;
  }

  /** Lay JSON out, or show it as it was written. */
  set isIndented(isIndented) {
    this.#isIndented = isIndented;
    this.#redraw();
  }

  #redraw() {
    this.#hide();
    this.#layout = new Layout();
    this.#box.replaceChildren();
    this.#tokens.forEach((token, index) => this.#draw(token, index));
  }

  #draw(token, index) {
    const isLaidOut = this.#isJson && this.#isIndented;
    const pieces = isLaidOut ? this.#layout.feed(token.text) : [written(token.text)];
    // one of which nothing is seen has a sign in the style sheet: text that is copied is JSON still
    if (!pieces.some((piece) => piece.isWritten)) pieces.push(written(""));
    let isFirst = true;
    for (const { text, isWritten } of pieces) {
      if (!isWritten) {
        this.#box.append(text);
        continue;
      }
      const span = document.createElement("span");
      span.className = `token ${token.origin}`;
      span.dataset.index = index;
      span.textContent = text;
      if (isFirst) {
        span.tabIndex = index === this.#current ? 0 : -1;
        span.setAttribute("role", "button");
        span.setAttribute("aria-label", `${visible(token.text)}, ${token.origin}`);
        span.setAttribute("aria-describedby", "detail");
      }
      isFirst = false;
      this.#box.append(span);
    }
  }

  #spans(index) {
    return [...this.#box.querySelectorAll(`[data-index="${index}"]`)];
  }

  #point(event) {
    const index = indexOf(event.target);
    if (index !== null && event.pointerType !== "touch") this.#show(index);
  }

  #leave() {
    const focused = this.#box.contains(document.activeElement);
    if (focused) this.#show(indexOf(document.activeElement));
    else this.#hide();
  }

  #show(index) {
    if (index === null) return;
    this.#hide();
    const spans = this.#spans(index);
    spans.forEach((span) => span.classList.add("is-lit"));
    this.#detail.show(this.#tokens[index], spans[0]);
  }

  #hide() {
    this.#box.querySelectorAll(".is-lit").forEach((span) => span.classList.remove("is-lit"));
    this.#detail.hide();
  }

  #focusOn(index) {
    if (index === null || index < 0 || index >= this.#tokens.length) return;
    const [old] = this.#spans(this.#current);
    if (old) old.tabIndex = -1;
    this.#current = index;
    const [first] = this.#spans(index);
    first.tabIndex = 0;
    first.focus({ preventScroll: true });
    first.scrollIntoView({ block: "nearest" });
    this.#show(index); // once more: it may have been scrolled
  }

  #key(event) {
    const last = this.#tokens.length - 1;
    const wanted = {
      ArrowRight: () => this.#current + 1,
      ArrowLeft: () => this.#current - 1,
      ArrowDown: () => this.#inLine(1),
      ArrowUp: () => this.#inLine(-1),
      Home: () => 0,
      End: () => last,
    }[event.key];
    if (event.key === "Escape") this.#hide();
    if (!wanted || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.#focusOn(wanted());
  }

  /** The token nearest below the current one, or above it with a step of -1. */
  #inLine(step) {
    const from = this.#spans(this.#current)[0].getClientRects()[0];
    let best = null;
    let line = null;
    for (let index = this.#current + step; this.#tokens[index]; index += step) {
      const rect = this.#spans(index)[0].getClientRects()[0];
      if (Math.abs(rect.top - from.top) < 4) continue;
      line ??= rect.top;
      if (Math.abs(rect.top - line) >= 4) break;
      const distance = Math.abs(rect.left - from.left);
      if (best === null || distance < best.distance) best = { index, distance };
    }
    return best?.index ?? this.#current;
  }
}

const written = (text) => ({ text, isWritten: true });

function indexOf(element) {
  const span = element.closest?.("[data-index]");
  return span ? Number(span.dataset.index) : null;
}
