// An answer as coloured tokens: hover, tap or arrow keys say who wrote a token and how sure the drafter was.

import { make } from "./dom.js";

const MEANING = {
  draft: "drafted and accepted",
  correction: "corrected by the target",
  bonus: "bonus of the target",
  plain: "written by the target, nothing was drafted",
};

/** What there is to know about a piece [text, origin, confidence]. */
export function describe([text, origin, confidence]) {
  const percent = confidence === null ? "" : `${(100 * confidence).toFixed(0)} %`;
  const sure = !percent ? "" : origin === "correction" ? `; confidence in the rejected draft ${percent}` : `; confidence ${percent}`;
  return `“${text.replaceAll("\n", "⏎")}”: ${MEANING[origin]}${sure}`;
}

export class TokenText {
  constructor() {
    this.pieces = [];
    this.chosen = -1;
    this.box = make("div", "tokens", [], { tabIndex: 0, role: "group", ariaLabel: "Answer; arrow keys go from token to token" });
    this.detail = make("p", "detail", [], { ariaLive: "polite" });
    this.box.addEventListener("pointerover", (event) => this.point(event.target));
    this.box.addEventListener("click", (event) => this.point(event.target));
    this.box.addEventListener("keydown", (event) => this.key(event));
  }

  get text() {
    return this.pieces.map(([text]) => text).join("");
  }

  add(pieces) {
    const fresh = pieces.map((piece) => {
      const [text, origin] = piece;
      return make("span", `token ${origin}`, text, { title: describe(piece) });
    });
    this.pieces.push(...pieces);
    this.box.append(...fresh);
  }

  clear() {
    this.pieces = [];
    this.chosen = -1;
    this.box.replaceChildren();
    this.detail.textContent = "";
  }

  point(element) {
    if (element !== this.box) this.choose([...this.box.children].indexOf(element));
  }

  key(event) {
    const last = this.pieces.length - 1;
    const place = { ArrowRight: this.chosen + 1, ArrowLeft: this.chosen - 1, Home: 0, End: last }[event.key];
    if (place === undefined || last < 0) return;
    event.preventDefault();
    this.choose(Math.min(Math.max(place, 0), last));
  }

  choose(place) {
    if (place < 0) return;
    this.box.children[this.chosen]?.classList.remove("chosen");
    this.chosen = place;
    this.box.children[place].classList.add("chosen");
    this.detail.textContent = describe(this.pieces[place]);
  }
}
