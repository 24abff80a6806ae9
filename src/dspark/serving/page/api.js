// Talking to the server this page came from: JSON, texts, and answers streamed as server-sent events.

/** What the server refused, or that it cannot be reached (status 0). */
export class ApiError extends Error {
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

const STORE = "dspark-api-key";
let apiKey = sessionStorage.getItem(STORE) ?? "";

/** Use a key from now on, in this tab only. */
export function useKey(key) {
  apiKey = key;
  sessionStorage.setItem(STORE, key);
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (apiKey) headers.Authorization = `Bearer ${apiKey}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached.");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response) {
  let message = `The server answered ${response.status}.`;
  try {
    message = (await response.json()).error.message;
  } catch { /* the status says enough */ }
  const seconds = Number(response.headers.get("Retry-After"));
  return new ApiError(response.status, message, seconds > 0 ? seconds : null);
}

export const getJson = async (path) => (await ask(path)).json();
export const getText = async (path) => (await ask(path)).text();

/** The chunks of a streamed answer, as they come. */
export async function* streamed(path, body, signal) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, signal };
  const response = await ask(path, { ...options, body: JSON.stringify({ ...body, stream: true }) });
  let ended = false;
  for await (const data of events(response.body)) {
    ended = data === "[DONE]";
    if (ended) break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(500, chunk.error.message);
    yield chunk;
  }
  if (!ended) throw new ApiError(0, "The connection broke before the answer ended.");
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        if (error.name === "AbortError") throw error;
        return { done: true };
      });
      if (done) return;
      const parts = (held + value).split("\n\n");
      held = parts.pop();
      for (const part of parts) {
        if (part.startsWith("data: ")) yield part.slice(6);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
