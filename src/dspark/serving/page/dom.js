// Small helpers for elements.

export const byId = (id) => document.getElementById(id);

/** An element with a class, children (elements or texts) and properties. */
export function make(tag, name = "", children = [], properties = {}) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...[children].flat());
  return Object.assign(element, properties);
}

/** The number in an input; null where there is none. */
export function numberOf(id) {
  const value = byId(id).value.trim();
  return value === "" ? null : Number(value);
}
