// Small helpers for the page. Text is only ever set as text: what parties send is never markup, and what of it nobody would
// see is shown.
import { visible } from "../client/bytes.ts";

export function byId<T extends Element = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (!element) throw new Error(`no element ${id}`);
  return element as unknown as T;
}

type Child = Node | string;

export function el(
  tag: string,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElement {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((child) => (typeof child === "string" ? visible(child) : child)));
  return element;
}

export function svg(tag: string, attributes: Record<string, string>, text = ""): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = visible(text);
  return element;
}

export function count(n: number | bigint): string {
  return n.toLocaleString("en");
}

/** The first bytes, in hexadecimal. */
export function begin(bytes: Uint8Array, length = 12): string {
  const shown = Array.from(bytes.subarray(0, length), (b) => b.toString(16).padStart(2, "0"));
  return shown.join("") + (bytes.length > length ? "…" : "");
}

/** A bar of parts, and what it shows in words. */
export function fillBar(
  bar: HTMLElement,
  words: string,
  parts: { kind: string; amount: number }[],
): void {
  bar.setAttribute("aria-label", words);
  bar.replaceChildren(
    ...parts
      .filter((part) => part.amount > 0)
      .map((part) => {
        const span = el("span", { class: part.kind });
        // A style attribute would need a weaker policy of the page than this does.
        span.style.flexGrow = String(part.amount);
        return span;
      }),
  );
}
