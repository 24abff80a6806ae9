// Asking for one answer, with its tokens' origins and the times they came at.

import { streamed } from "./api.js";

const EXTENSIONS = { return_origins: true, dspark_usage: true, stream_options: { include_usage: true } };

/**
 * Stream an answer.
 *
 * request: { messages } or { prompt }, and any field of the API; draft: whether to draft.
 * onPieces: called with [[text, origin, confidence], …] and milliseconds since the request.
 * Gives { usage, reason, first, last }: times of the first and the last token, in milliseconds since the request.
 */
export async function answer(request, { draft = true, signal, onPieces }) {
  const path = request.messages ? "v1/chat/completions" : "v1/completions";
  const body = { ...request, ...EXTENSIONS, ...(draft ? {} : { max_draft_tokens: 0 }) };
  const start = performance.now();
  const found = { usage: null, reason: null, first: null, last: null };
  for await (const chunk of streamed(path, body, signal)) {
    found.usage = chunk.usage ?? found.usage;
    const [choice] = chunk.choices;
    if (!choice) continue;
    found.reason = choice.finish_reason ?? found.reason;
    if (choice.pieces?.length) {
      found.last = performance.now() - start;
      found.first ??= found.last;
      onPieces(choice.pieces, found.last);
    }
  }
  return found;
}

/** Tokens per second after the first token; null where there is too little to say. */
export function speedOf({ usage, first, last }) {
  const tokens = (usage?.completion_tokens ?? 0) - 1;
  return tokens > 0 && last > first ? (1000 * tokens) / (last - first) : null;
}

/** Speed and acceptance in words. */
export function figuresOf(found) {
  const { usage, first } = found;
  if (!usage) return "";
  const speed = speedOf(found);
  const parts = [`${usage.completion_tokens} tokens`];
  if (first !== null) parts.push(`first after ${(first / 1000).toFixed(2)} s`);
  if (speed !== null) parts.push(`${speed.toFixed(1)} tokens/s`);
  const { rounds, verified, accepted } = usage.dspark;
  if (verified) parts.push(`${accepted} of ${verified} verified drafts accepted`);
  if (rounds && verified) parts.push(`${((usage.completion_tokens - 1) / rounds).toFixed(2)} tokens a round`);
  return parts.join(" · ");
}

/** An error as a person should read it. */
export function explain(error) {
  if (error.name === "AbortError") return "Stopped.";
  if (error.status === 429) return `The server is busy: ${error.message}.`;
  if (error.status === 400) return `The request was refused: ${error.message}.`;
  return error.message;
}
