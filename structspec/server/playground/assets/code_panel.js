/** The request as code, in one of several languages, to be copied. */
export class CodePanel {
  #tabs;
  #pane;
  #write;
  #language = "curl";

  /** `write(language)` gives the code; `tabs` and `pane` are what it is chosen by and shown in. */
  constructor(tabs, pane, copy, write) {
    this.#tabs = tabs;
    this.#pane = pane;
    this.#write = write;
    tabs.addEventListener("click", ({ target }) => target.role === "tab" && this.#choose(target));
    tabs.addEventListener("keydown", (event) => this.#key(event));
    copy.addEventListener("click", () => this.#copy(copy));
  }

  /** Show what the form asks for now. */
  update() {
    this.#code.textContent = this.#write(this.#language);
  }

  get #code() {
    return this.#pane.querySelector("code");
  }

  #choose(tab) {
    this.#language = tab.id.replace("tab-", "");
    for (const other of this.#tabs.children) {
      other.setAttribute("aria-selected", other === tab);
      other.tabIndex = other === tab ? 0 : -1;
    }
    this.#pane.setAttribute("aria-labelledby", tab.id);
    this.update();
  }

  #key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const tabs = [...this.#tabs.children];
    const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
    this.#choose(next);
    next.focus();
  }

  async #copy(button) {
    try {
      await navigator.clipboard.writeText(this.#code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(this.#code); // not allowed here: it can be taken by hand
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }
}
