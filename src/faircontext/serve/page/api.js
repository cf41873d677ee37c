// Asking the service: one place for the token, for refusals, and for coming again when it is busy.

let token = "";

export class Refusal extends Error {
  constructor(status, field, message) {
    super(message);
    this.status = status;
    this.field = field;
  }
}

export function useToken(word) {
  token = word;
}

export async function ask(path, body, signal) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  for (;;) {
    let response;
    try {
      response = await fetch(path, { method: body ? "POST" : "GET", body, headers, signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refusal(0, "", "The service cannot be reached; is it still running?");
    }
    if (response.ok) return response.json();
    if (response.status === 429 && body) {
      await pause(Number(response.headers.get("Retry-After")) || 1, signal);
      continue;
    }
    const answer = await response.json().catch(() => null);
    const problem = answer?.error ?? { field: "", message: `The service answered ${response.status}.` };
    throw new Refusal(response.status, problem.field, problem.message);
  }
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    });
  });
}
