// The console's script. Every page works without it; it adds three things:
//
//   - parts marked data-part="NAME" are asked for again every few seconds (the same page with ?part=NAME, which
//     answers the part's inside) and put in place where they changed. Not while the page is hidden, not while the
//     visitor has typed into the part; ever more slowly while the server does not answer.
//   - "/" goes to the search field, "?" shows the keys, "g" and a letter go to a section (data-key on its link).
//   - a form is sent once, however often its button is pressed.

const EVERY_MS = 5_000;
const SLOWEST_MS = 60_000;
const DEADLINE_MS = 10_000;
const PREFIX_MS = 1_500;

const parts = [...document.querySelectorAll("[data-part]")];
const state = document.querySelector("[data-live-state]");
let waitMs = EVERY_MS;
let timer = 0;
let asking = false;

function say(kind, text) {
  if (!state || state.textContent === text) {
    return;
  }
  state.className = `live-state ${kind}`;
  state.textContent = text;
  state.hidden = false;
}

// How an element is found again after its part was replaced: by its id, its address, or its name.
function pathOf(element) {
  if (element.id) {
    return `#${CSS.escape(element.id)}`;
  }
  for (const name of ["href", "name", "data-keep"]) {
    const value = element.getAttribute(name);
    if (value !== null) {
      return `${element.localName}[${name}="${CSS.escape(value)}"]`;
    }
  }
  return "";
}

function isBusy(part) {
  const fields = [...part.querySelectorAll("input, textarea, select")];
  return fields.some((field) => {
    if (field === document.activeElement) {
      return true;
    }
    if (field.type === "checkbox" || field.type === "radio") {
      return field.checked !== field.defaultChecked;
    }
    if (field.localName === "select") {
      return [...field.options].some((option) => option.selected !== option.defaultSelected && option.selected);
    }
    return field.value !== field.defaultValue;
  });
}

function keyOfDetails(details) {
  return details.id || details.getAttribute("data-keep") || details.querySelector("summary")?.textContent || "";
}

function replace(part, text) {
  if (part.dataset.shown === text || isBusy(part)) {
    return;
  }
  const inside = new DOMParser().parseFromString(text, "text/html").body;
  const open = new Set([...part.querySelectorAll("details[open]")].map(keyOfDetails));
  for (const details of inside.querySelectorAll("details")) {
    if (open.has(keyOfDetails(details))) {
      details.open = true;
    }
  }
  const focused = part.contains(document.activeElement) ? pathOf(document.activeElement) : "";
  const scrolled = [...part.querySelectorAll(".table-wrap, pre")].map((box) => [box.scrollLeft, box.scrollTop]);
  part.replaceChildren(...inside.childNodes);
  part.dataset.shown = text;
  [...part.querySelectorAll(".table-wrap, pre")].forEach((box, index) => {
    if (scrolled[index]) {
      [box.scrollLeft, box.scrollTop] = scrolled[index];
    }
  });
  if (focused) {
    part.querySelector(focused)?.focus({ preventScroll: true });
  }
}

async function ask(part) {
  const address = new URL(window.location.href);
  address.hash = "";
  address.searchParams.set("part", part.dataset.part);
  const answer = await fetch(address, {
    credentials: "same-origin",
    redirect: "manual",
    signal: AbortSignal.timeout(DEADLINE_MS),
  });
  if (answer.type === "opaqueredirect" || answer.status === 401 || answer.status === 403) {
    return false;
  }
  if (!answer.ok) {
    throw new Error(`${answer.status}`);
  }
  replace(part, await answer.text());
  return true;
}

async function refresh() {
  timer = 0;
  if (document.hidden || asking) {
    return;
  }
  asking = true;
  try {
    for (const part of parts) {
      if (!(await ask(part))) {
        say("late", "No longer allowed, or signed out: load the page again.");
        return;
      }
    }
    waitMs = EVERY_MS;
    say("on", "Live");
  } catch {
    waitMs = Math.min(SLOWEST_MS, waitMs * 2);
    say("late", "The server does not answer; what is shown may be old.");
  } finally {
    asking = false;
  }
  schedule();
}

function schedule() {
  if (timer === 0 && !document.hidden) {
    timer = window.setTimeout(refresh, waitMs);
  }
}

if (parts.length > 0) {
  say("on", "Live");
  schedule();
  document.addEventListener("visibilitychange", () => {
    window.clearTimeout(timer);
    timer = 0;
    if (!document.hidden) {
      waitMs = EVERY_MS;
      refresh();
    }
  });
}

// ---- keys ------------------------------------------------------------------------------------------------------

function isTyping(target) {
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;
}

function linksWithKeys() {
  return [...document.querySelectorAll("a[data-key]")];
}

function help() {
  const dialog = document.createElement("dialog");
  const heading = document.createElement("h2");
  heading.id = "keys-heading";
  heading.textContent = "Keys";
  dialog.setAttribute("aria-labelledby", heading.id);
  const list = document.createElement("dl");
  const rows = [
    ["/", "Go to the search field"],
    ["?", "Show these keys"],
    ["Esc", "Close"],
    ...linksWithKeys().map((link) => [`g ${link.dataset.key}`, link.textContent.trim()]),
  ];
  for (const [key, meaning] of rows) {
    const term = document.createElement("dt");
    const shown = document.createElement("kbd");
    shown.textContent = key;
    term.append(shown);
    const definition = document.createElement("dd");
    definition.textContent = meaning;
    list.append(term, definition);
  }
  const form = document.createElement("form");
  form.method = "dialog";
  const close = document.createElement("button");
  close.textContent = "Close";
  form.append(close);
  dialog.append(heading, list, form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

let prefixAt = -Infinity;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(event.target)) {
    return;
  }
  if (document.querySelector("dialog[open]")) {
    return;
  }
  if (event.timeStamp - prefixAt < PREFIX_MS) {
    prefixAt = -Infinity;
    const link = linksWithKeys().find((each) => each.dataset.key === event.key);
    if (link) {
      event.preventDefault();
      link.click();
    }
    return;
  }
  if (event.key === "g") {
    prefixAt = event.timeStamp;
  } else if (event.key === "/") {
    const field = document.querySelector("main input[type=search]");
    if (field) {
      event.preventDefault();
      field.focus();
      field.select();
    }
  } else if (event.key === "?") {
    event.preventDefault();
    help();
  }
});

for (const link of document.querySelectorAll("[data-keys-help]")) {
  link.hidden = false;
  link.addEventListener("click", help);
}

// ---- forms -----------------------------------------------------------------------------------------------------

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") {
    return;
  }
  if (form.dataset.sent) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = "yes";
});

// A page that comes back from the browser's memory has sent nothing yet.
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) {
    delete form.dataset.sent;
  }
});
