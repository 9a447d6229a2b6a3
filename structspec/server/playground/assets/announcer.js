/** Tells screen readers of text that grows, in whole words and not at every token. */
export class Announcer {
  #region;
  #pauseMs;
  #told = 0; // characters
  #last = 0;

  constructor(region, pauseMs = 2000) {
    this.#region = region;
    this.#pauseMs = pauseMs;
  }

  /** The text so far. */
  grow(text) {
    const now = performance.now();
    if (now - this.#last < this.#pauseMs) return;
    const end = Math.max(text.lastIndexOf(" "), text.lastIndexOf(","));
    if (end <= this.#told) return;
    this.say(text.slice(this.#told, end));
    this.#told = end;
    this.#last = now;
  }

  /** The rest of the text, and how it ended. */
  finish(text, how) {
    this.say(`${text.slice(this.#told)} ${how}`);
    this.#told = 0;
    this.#last = 0;
  }

  say(text) {
    this.#region.textContent = text;
  }
}
