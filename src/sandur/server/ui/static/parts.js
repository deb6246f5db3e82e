// A part of a page that takes long is loaded by itself, and given up after ten seconds.
for (const part of document.querySelectorAll("[data-part]")) {
  part.setAttribute("aria-busy", "true");
  fetch(part.dataset.part, { signal: AbortSignal.timeout(10000) })
    .then(async (answer) => {
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      const whole = parsed.querySelector("main");
      part.replaceChildren(...(whole ? whole.querySelectorAll(".state") : parsed.body.childNodes));
    })
    .catch(() => {
      const sorry = document.createElement("p");
      sorry.className = "stale";
      sorry.textContent = "This part took too long. Reload the page to try again.";
      part.replaceChildren(sorry);
    })
    .finally(() => part.removeAttribute("aria-busy"));
}
