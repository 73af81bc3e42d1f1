"use strict";
document.getElementById("form").addEventListener("submit", async event => {
  event.preventDefault();
  const body = JSON.stringify({ token: document.getElementById("token").value });
  const say = text => { document.getElementById("problem").textContent = text; };
  try {
    const response = await fetch("/api/session", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (response.ok) location.assign("/");
    else say((await response.json()).detail);
  } catch {
    say("the server does not answer");
  }
});
