// The playground: a conversation whose answers show who wrote each token.

import { answer, explain, figuresOf } from "./answer.js";
import { byId, make, numberOf } from "./dom.js";
import { TokenText } from "./tokens.js";

let turns = []; // messages of the conversation so far
let running = null; // AbortController of the answer in progress

export function startPlayground(onError) {
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    send(onError);
  });
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      byId("ask").requestSubmit();
    }
  });
  byId("playground").addEventListener("keydown", (event) => event.key === "Escape" && running?.abort());
  byId("stop").addEventListener("click", () => running?.abort());
  byId("clear").addEventListener("click", () => {
    running?.abort();
    turns = [];
    byId("turns").replaceChildren();
    byId("prompt").focus();
  });
}

/** Whether the model has a chat template; without one there is only raw text. */
export function allowChat(chat) {
  const box = byId("raw");
  box.checked = !chat;
  box.disabled = !chat;
}

function options() {
  const chosen = { max_tokens: numberOf("max-tokens"), temperature: numberOf("temperature"), seed: numberOf("seed") };
  return Object.fromEntries(Object.entries(chosen).filter(([, value]) => value !== null));
}

async function send(onError) {
  const prompt = byId("prompt").value;
  if (running || !prompt.trim()) return;
  const raw = byId("raw").checked;
  const talk = [...turns, { role: "user", content: prompt }];
  const request = { ...options(), ...(raw ? { prompt } : { messages: talk }) };
  const text = new TokenText();
  const figures = make("p", "figures", [], { role: "status" });
  const turn = make("article", "turn", [
    make("p", "who", "You"), make("p", "asked", prompt), make("p", "who", "Model"), text.box, text.detail, figures,
  ]);
  byId("turns").prepend(turn);
  byId("prompt").value = "";
  busy(new AbortController());
  try {
    const found = await answer(request, {
      draft: byId("draft").checked, signal: running.signal, onPieces: (pieces) => text.add(pieces),
    });
    figures.textContent = figuresOf(found);
    if (!raw) turns = [...talk, { role: "assistant", content: text.text }];
  } catch (error) {
    turn.append(complaint(error, prompt));
    onError(error);
  } finally {
    busy(null);
  }
}

function busy(controller) {
  running = controller;
  byId("send").disabled = controller !== null;
  byId("stop").disabled = controller === null;
}

/** What went wrong, and a way to try again. */
function complaint(error, prompt) {
  const again = make("button", "", "Try again", { type: "button" });
  const box = make("p", "error", [explain(error), again], { role: "alert" });
  again.addEventListener("click", () => {
    byId("prompt").value = prompt;
    box.closest(".turn").remove();
    byId("ask").requestSubmit();
  });
  return box;
}
