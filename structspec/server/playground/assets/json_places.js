/** Where in a JSON text its parts stand, for errors that name a part by its JSON pointer. */

/** The text is not JSON: why, and from which character on. */
export class JsonFault extends Error {
  constructor(message, at) {
    super(message);
    this.at = at;
  }
}

/** {value, places}: the value, and [from, to) of each part by pointer; throws JsonFault. */
export function readJson(text) {
  const reader = new Reader(text);
  const value = reader.document();
  return { value, places: reader.places };
}

/** [from, to) of the part a pointer such as "#/properties/age" names, or of the nearest around it. */
export function findPlace(places, pointer) {
  let path = pointer.replace(/^#/, "");
  while (!places.has(path) && path) path = path.slice(0, path.lastIndexOf("/"));
  return places.get(path) ?? null;
}

const SCALAR = /true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*"/y;
const BLANK = /[ \t\r\n]*/y;

class Reader {
  #text;
  #at = 0;
  places = new Map();

  constructor(text) {
    this.#text = text;
  }

  document() {
    this.#skip();
    const value = this.#value("", this.#at);
    if (this.#at < this.#text.length) this.#fail("nothing may follow the end of the JSON");
    return value;
  }

  #value(path, from) {
    const character = this.#text[this.#at];
    let value;
    if (character === "{") value = this.#object(path);
    else if (character === "[") value = this.#array(path);
    else if (character === '"') value = this.#string("a string is not closed, or not valid");
    else value = this.#scalar();
    this.places.set(path, [from, this.#at]);
    this.#skip();
    return value;
  }

  #object(path) {
    const object = {};
    this.#items("}", () => {
      const from = this.#at;
      if (this.#text[this.#at] !== '"') this.#fail("a key in double quotes must stand here");
      const key = this.#string("a key is not closed, or not valid");
      this.#skip();
      if (this.#text[this.#at] !== ":") this.#fail('":" must stand here');
      this.#at += 1;
      this.#skip();
      const below = `${path}/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`;
      Object.defineProperty(object, key, {
        value: this.#value(below, from),
        enumerable: true,
        configurable: true,
        writable: true,
      });
    });
    return object;
  }

  #array(path) {
    const array = [];
    this.#items("]", () => array.push(this.#value(`${path}/${array.length}`, this.#at)));
    return array;
  }

  /** What stands between brackets, with commas between. */
  #items(end, read) {
    this.#at += 1;
    this.#skip();
    if (this.#text[this.#at] !== end) {
      read();
      while (this.#text[this.#at] === ",") {
        this.#at += 1;
        this.#skip();
        if (this.#text[this.#at] === end) this.#fail(`no comma may stand before "${end}"`);
        read();
      }
      if (this.#text[this.#at] !== end) this.#fail(`"," or "${end}" must stand here`);
    }
    this.#at += 1;
  }

  #string(fault) {
    const raw = this.#match(STRING);
    if (raw === null) this.#fail(fault);
    return JSON.parse(raw);
  }

  #scalar() {
    const raw = this.#match(SCALAR);
    if (raw === null) this.#fail("a value must stand here");
    return JSON.parse(raw);
  }

  #skip() {
    this.#match(BLANK);
  }

  #match(pattern) {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text);
    if (found === null) return null;
    this.#at += found[0].length;
    return found[0];
  }

  #fail(message) {
    throw new JsonFault(message, this.#at);
  }
}
