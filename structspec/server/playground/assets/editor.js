/** A text area in which a place can be marked: what is marked lies in a layer behind its text. */
export class Editor {
  #area;
  #marks;

  constructor(area, marks) {
    this.#area = area;
    this.#marks = marks;
    area.addEventListener("scroll", () => this.#follow());
    area.addEventListener("input", () => this.clear());
    area.addEventListener("keydown", (event) => this.#indent(event));
  }

  get text() {
    return this.#area.value;
  }

  set text(text) {
    this.#area.value = text;
    this.#area.scrollTop = 0;
    this.clear();
  }

  /** Mark the characters [from, to), at least one, and bring them into view. */
  mark(from, to) {
    const text = this.#area.value;
    const mark = document.createElement("mark");
    mark.textContent = text.slice(from, Math.max(to, from + 1)) || " ";
    this.#marks.replaceChildren(text.slice(0, from), mark, text.slice(Math.max(to, from + 1)), "\n");
    const line = text.slice(0, from).split("\n").length - 1;
    const height = Number.parseFloat(getComputedStyle(this.#area).lineHeight);
    this.#area.scrollTop = Math.max(0, (line - 3) * height);
    this.#area.setAttribute("aria-invalid", "true");
    this.#follow();
  }

  /** Select the characters [from, to), for whoever goes on there. */
  select(from, to) {
    this.#area.focus();
    this.#area.setSelectionRange(from, Math.max(to, from + 1));
  }

  clear() {
    this.#marks.replaceChildren();
    this.#area.removeAttribute("aria-invalid");
  }

  #follow() {
    this.#marks.scrollTop = this.#area.scrollTop;
    this.#marks.scrollLeft = this.#area.scrollLeft;
  }

  /** A new line begins where the one before it does; Tab is left to leave the field. */
  #indent(event) {
    if (event.key !== "Enter" || event.ctrlKey || event.metaKey) return;
    const { value, selectionStart } = this.#area;
    const line = value.slice(value.lastIndexOf("\n", selectionStart - 1) + 1, selectionStart);
    const blanks = line.match(/^ */)[0];
    if (!blanks) return;
    event.preventDefault();
    this.#area.setRangeText(`\n${blanks}`, selectionStart, this.#area.selectionEnd, "end");
    this.clear();
  }
}
