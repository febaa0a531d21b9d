// Two npm clients ask through the gateway, whole and streamed, and print what they made of it.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [, , url, folder] = process.argv;
const require = createRequire(`${folder}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);

const schema = { type: "object", properties: { text: { type: "string" } } };
const search = { type: "tool_search_tool_regex_20251119", name: "tool_search_tool_regex" };
const held = { name: "read_tide", description: "Tell when the water is high", input_schema: schema, defer_loading: true };

const { default: Anthropic } = await load("@anthropic-ai/sdk");
const client = new Anthropic({ baseURL: url, apiKey: "secret", maxRetries: 0 });
const request = {
  model: "plain-model",
  max_tokens: 99,
  messages: [{ role: "user", content: "When is high tide?" }],
  tools: [search, held],
};
const whole = await client.messages.create(request);
const streamed = await client.messages.stream(request).finalMessage();

const { createAnthropic } = await load("@ai-sdk/anthropic");
const { generateText, streamText, tool, jsonSchema } = await load("ai");
const provider = createAnthropic({ baseURL: `${url}/v1`, apiKey: "secret" });
const options = {
  model: provider("plain-model"),
  prompt: "When is high tide?",
  maxRetries: 0,
  tools: {
    toolSearch: provider.tools.toolSearchRegex_20251119(),
    read_tide: tool({
      description: "Tell when the water is high",
      inputSchema: jsonSchema(schema),
      providerOptions: { anthropic: { deferLoading: true } },
    }),
  },
};
const calls = (result) => result.map((call) => [call.toolName, Boolean(call.providerExecuted)]);
const generated = await generateText(options);
const flowing = streamText(options);
await flowing.consumeStream();

console.log(JSON.stringify({
  whole: whole.content.map((block) => block.type),
  streamed: streamed.content.map((block) => block.type),
  generated: calls(generated.toolCalls),
  flowing: calls(await flowing.toolCalls),
}));
