/**
 * Lays out JSON text while it grows, as JSON.stringify(value, null, 2) would.
 *
 * Text comes in pieces of any size and goes out as pieces that were written and white space that
 * was not. What stands outside of brackets is left as it is.
 */
export class Layout {
  #depth = 0;
  #isString = false;
  #isEscaped = false;
  #last = "";

  /** The pieces [{text, isWritten}] that this text adds. */
  feed(text) {
    const pieces = [];
    for (const character of text) {
      const [before, shown] = this.#take(character);
      add(pieces, before, false);
      add(pieces, shown, true);
    }
    return pieces;
  }

  /** What goes before a character, and what is shown of it. */
  #take(character) {
    if (this.#isString) {
      this.#isString = this.#isEscaped || character !== '"';
      this.#isEscaped = character === "\\" && !this.#isEscaped;
      return ["", character];
    }
    const isOpening = character === "{" || character === "[";
    if (this.#depth === 0 && !isOpening) return ["", character];
    if (/\s/.test(character)) return ["", this.#last === ":" ? this.#spaceAfterColon() : ""];
    const isClosing = character === "}" || character === "]";
    if (isClosing) this.#depth -= 1;
    const before = this.#whiteSpaceBefore(isClosing);
    if (isOpening) this.#depth += 1;
    this.#isString = character === '"';
    this.#last = character;
    return [before, character];
  }

  #spaceAfterColon() {
    this.#last = ": ";
    return " ";
  }

  #whiteSpaceBefore(isClosing) {
    const isFirst = this.#last === "{" || this.#last === "[";
    if (this.#last === "," || (isFirst ? !isClosing : isClosing)) {
      return `\n${"  ".repeat(this.#depth)}`;
    }
    return this.#last === ":" ? " " : "";
  }
}

function add(pieces, text, isWritten) {
  if (!text) return;
  const last = pieces.at(-1);
  if (last?.isWritten === isWritten) last.text += text;
  else pieces.push({ text, isWritten });
}
