/** What the page starts from: a constraint as the editor shows it, and a prompt that goes with it. */

const pretty = (value) => JSON.stringify(value, null, 2);

const person = {
  type: "object",
  properties: {
    name: { type: "string", maxLength: 40 },
    age: { type: "integer", minimum: 0, maximum: 130 },
    email: { type: "string", format: "email", maxLength: 40 },
    address: {
      type: "object",
      properties: {
        street: { type: "string", maxLength: 40 },
        city: { type: "string", maxLength: 40 },
      },
      required: ["street", "city"],
    },
  },
  required: ["name", "age", "email", "address"],
};

const weather = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "What the weather will be in a city",
      parameters: {
        type: "object",
        properties: {
          city: { type: "string", maxLength: 30 },
          days: { type: "integer", minimum: 1, maximum: 7 },
          unit: { enum: ["celsius", "fahrenheit"] },
        },
        required: ["city", "days", "unit"],
      },
    },
  },
];

const records = {
  type: "array",
  minItems: 1,
  maxItems: 4,
  items: {
    type: "object",
    properties: {
      product: { type: "string", maxLength: 30 },
      quantity: { type: "integer", minimum: 1, maximum: 1000 },
      price: { type: "number", minimum: 0, maximum: 10000 },
      in_stock: { type: "boolean" },
    },
    required: ["product", "quantity", "price", "in_stock"],
  },
};

const query = `start: "SELECT " columns " FROM " table filter? ";"
columns: column (", " column)*
column: "name" | "price" | "city"
table: "products" | "customers"
filter: " WHERE " column " = '" VALUE "'"
VALUE: /[A-Za-z ]{1,20}/`;

export const EXAMPLES = [
  {
    name: "Person",
    kind: "schema",
    constraint: pretty(person),
    prompt:
      "Extract the person: Maria Rossi, 34 years old, lives at 12 Garden Street in Rome." +
      " Write to maria.rossi@example.com.",
  },
  {
    name: "Tool call",
    kind: "tools",
    constraint: pretty(weather),
    prompt: "What will the weather be in Oslo over the next 3 days, in celsius?",
  },
  {
    name: "List of records",
    kind: "schema",
    constraint: pretty(records),
    prompt:
      "Extract every product of this order.\n\n" +
      "Desk lamp: 2 pieces, 19.90 each, in stock.\n" +
      "Pencil: 12 pieces, 0.45 each, in stock.\n" +
      "Office chair: 1 piece, 149.00 each, sold out.",
  },
  {
    name: "Regex",
    kind: "regex",
    constraint: "(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
    prompt: "On which date did people first walk on the moon? Write it as YYYY-MM-DD.",
  },
  {
    name: "Choice",
    kind: "choice",
    constraint: "positive\nnegative\nneutral",
    prompt: "How does the writer feel? “Great screen, and the battery lasts for days.”",
  },
  {
    name: "Grammar",
    kind: "grammar",
    constraint: query,
    prompt: "Write an SQL query for the name and price of all products.",
  },
  {
    name: "Free text",
    kind: "text",
    constraint: "",
    prompt: "Why is the sky blue? Answer in two sentences.",
  },
];

/** How the editor presents each kind of constraint. */
export const KINDS = {
  schema: {
    label: "JSON schema",
    hint: "An object has the declared properties only, unless additionalProperties says otherwise.",
    isJson: true,
  },
  tools: {
    label: "Tools, as JSON",
    hint: "A list of tools as OpenAI's clients send it; one of them is called.",
    isJson: true,
  },
  regex: { label: "Regex", hint: "The whole text matches it." },
  choice: { label: "Choices", hint: "One in each line." },
  grammar: { label: "Grammar", hint: "Lark, EBNF or GBNF." },
  text: { label: "", hint: "" },
};
