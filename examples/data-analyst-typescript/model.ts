// A model behind the chat completions protocol: OpenAI's, or whatever speaks it at OPENAI_BASE_URL.

type Content = string | ({ type: "text"; text: string } | { type: "image_url"; image_url: { url: string } })[];

export interface Reply {
  role: "assistant";
  content: string | null;
  tool_calls?: { id: string; type: "function"; function: { name: string; arguments: string } }[];
}

export type Message = { role: "system" | "user"; content: Content } | { role: "tool"; tool_call_id: string; content: string } | Reply;

export interface Tool {
  type: "function";
  function: { name: string; description: string; parameters: object; strict: boolean };
}

export class Model {
  constructor(
    private readonly name = process.env["OPENAI_MODEL"] ?? "gpt-5.1",
    private readonly baseUrl = process.env["OPENAI_BASE_URL"] ?? "https://api.openai.com/v1",
    private readonly key = process.env["OPENAI_API_KEY"] ?? "",
  ) {}

  async complete(messages: Message[], tools: Tool[]): Promise<Reply> {
    const response = await fetch(`${this.baseUrl}/chat/completions`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${this.key}` },
      body: JSON.stringify({ model: this.name, messages, tools }),
    });
    if (!response.ok) throw new Error(`the model answers ${response.status}: ${await response.text()}`);
    const { choices } = (await response.json()) as { choices: [{ message: Reply }] };
    return choices[0].message;
  }
}
