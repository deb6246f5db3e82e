// The slider of the timeline: it loads the chosen version without leaving the page. The arrow keys move it.
const form = document.querySelector("form.scrub");
const slider = document.getElementById("at");
const text = document.getElementById("at-text");
const part = document.getElementById("version");
const line = form?.querySelector("path.now");
const known = new Map(); // A version never changes, so each is loaded once.
let wanted = 0;
let timer = 0;

function mark(version) {
  for (const row of document.querySelectorAll("tr[data-version]")) {
    row.classList.toggle("current", row.dataset.version === version);
  }
}

// The mark of the plot is above the thumb of the slider.
function move() {
  const share = (slider.value - slider.min) / Math.max(slider.max - slider.min, 1);
  line?.setAttribute("transform", `translate(${share * line.dataset.width} 0)`);
}

async function load(version) {
  const answer = await fetch(`${form.dataset.fragment}/${version}`, { signal: AbortSignal.timeout(10000) });
  const html = await answer.text();
  if (!answer.ok) throw new Error(String(answer.status));
  known.set(version, html);
  return html;
}

async function show(version) {
  const number = ++wanted;
  part.setAttribute("aria-busy", "true");
  try {
    const html = known.get(version) ?? (await load(version));
    if (number !== wanted) return;
    const parsed = new DOMParser().parseFromString(html, "text/html");
    part.replaceChildren(...parsed.body.childNodes);
    history.replaceState(null, "", `?at=${version}`);
    mark(version);
  } catch {
    if (number !== wanted) return;
    const sorry = document.createElement("p");
    sorry.className = "stale";
    sorry.textContent = `Version ${version} could not be loaded. Move the slider to try again.`;
    part.replaceChildren(sorry);
  } finally {
    if (number === wanted) part.removeAttribute("aria-busy");
  }
}

if (form && slider && part) {
  slider.addEventListener("input", () => {
    text.value = slider.value;
    move();
    clearTimeout(timer);
    timer = setTimeout(() => show(slider.value), 120);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    show(slider.value);
  });
}
