// Tells the user of a question while they look elsewhere: by the desktop's notifications, if they want that.

import { h } from "/js/core/dom.js";
import { titleOf } from "/js/threads/thread_list.js";
import { questionText } from "/js/requests/answers.js";

const KEY = "app-server-inspector.announces";

/** Show a notification for each question that comes while the page is not looked at. */
export function announceQuestions(app) {
  app.questions.on("asked", (question) => {
    if (!announces() || document.hasFocus()) return;
    const thread = app.threads.threads.get(question.params?.threadId);
    const notification = new Notification(thread ? titleOf(thread) : "app-server inspector", {
      body: questionText(question).slice(0, 200),
      tag: `question-${question.key}`,
    });
    notification.onclick = () => {
      window.focus();
      app.go("#/requests/oldest");
    };
    const off = app.questions.on("settled", ({ question: settled }) => {
      if (settled !== question) return;
      notification.close();
      off();
    });
  });
}

/** A button that switches notifications on and off; null where the browser has none. */
export function announceButton(app) {
  if (!("Notification" in window)) return null;
  const button = h("button", { type: "button", "aria-pressed": announces() }, "Notify me");
  button.addEventListener("click", async () => {
    const wants = !announces();
    if (wants && (await Notification.requestPermission()) !== "granted") {
      app.toasts.fail(
        "The browser does not let this page notify you: allow it in the settings of the site.",
      );
      return;
    }
    localStorage.setItem(KEY, wants ? "on" : "off");
    button.setAttribute("aria-pressed", announces());
  });
  return button;
}

function announces() {
  return localStorage.getItem(KEY) === "on" && window.Notification?.permission === "granted";
}
