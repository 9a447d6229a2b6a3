/** A chat request over HTTP, and the events of its streamed answer. */

/** What the server refused or could not do: `error` is the object that OpenAI's clients read. */
export class ApiFault extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.error = error;
  }
}

const headersOf = (key) => (key ? { authorization: `Bearer ${key}` } : {});

/** The name of the model that is served; throws ApiFault. */
export async function fetchModel(base, key) {
  const response = await fetch(new URL("models", base), { headers: headersOf(key) });
  await check(response);
  return (await response.json()).data[0].id;
}

/** The data of the events of an answer, as they come; throws ApiFault. */
export async function* streamChat(base, body, key, signal) {
  const response = await fetch(new URL("chat/completions", base), {
    method: "POST",
    headers: { "content-type": "application/json", ...headersOf(key) },
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  });
  await check(response);
  for await (const data of eventsOf(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiFault(200, chunk.error);
    yield chunk;
  }
}

async function check(response) {
  if (response.ok) return;
  const text = await response.text();
  let error = { message: text || response.statusText };
  try {
    error = JSON.parse(text).error ?? error;
  } catch {
    // an answer of something between the server and here
  }
  throw new ApiFault(response.status, error);
}

async function* eventsOf(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      if (event.startsWith("data: ")) yield event.slice("data: ".length);
    }
  }
}
