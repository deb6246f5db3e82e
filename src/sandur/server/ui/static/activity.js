// The activity page looks for new commits every minute, as long as it is visible.
const rows = document.querySelector("[data-poll]");

async function poll() {
  if (document.hidden) return;
  try {
    const answer = await fetch(rows.dataset.poll, { signal: AbortSignal.timeout(10000) });
    if (!answer.ok) return;
    const parsed = new DOMParser().parseFromString(`<table><tbody>${await answer.text()}</tbody></table>`, "text/html");
    const found = parsed.querySelectorAll("tr");
    if (found.length) rows.replaceChildren(...found);
  } catch {
    // The next minute may be better.
  }
}

if (rows) setInterval(poll, 60000);
