// The MCP servers of this server, as it lists them for one thread or for none.

import { Emitter } from "/js/core/emitter.js";

const LIST_MS = 60_000;

/** Events: "changed". */
export class McpServerStore extends Emitter {
  /** Servers as `mcpServerStatus/list` has them; null before the first list came. */
  servers = null;
  /** The thread whose connections are used; "" before one was chosen or started. */
  threadId = "";

  constructor(connection, threads) {
    super();
    this.connection = connection;
    this.threads = threads;
    connection.on("status", () => {
      if (!connection.isReady) this.servers = null;
    });
  }

  /** Use the connections of another thread; "" means of none. */
  choose(threadId) {
    this.threadId = threadId;
    return this.refresh();
  }

  /** List the servers again, with tools and resources. */
  async refresh() {
    const params = { detail: "full", threadId: this.threadId || null };
    const page = await this.connection.call("mcpServerStatus/list", params, { timeoutMs: LIST_MS });
    this.servers = page.data;
    this.emit("changed");
  }

  /** Call a tool as a client; starts a thread of memory alone if none is chosen. */
  async callTool(server, tool, args) {
    const threadId = await this.#thread();
    return this.connection.call("mcpServer/tool/call", { threadId, server, tool, arguments: args });
  }

  /** Read a resource, over a connection of its own if no thread is chosen. */
  readResource(server, uri) {
    const params = { server, uri, threadId: this.threadId || null };
    return this.connection.call("mcpServer/resource/read", params);
  }

  /** Begin a sign-in; returns the address to visit. */
  async signIn(name) {
    const threadId = this.threadId || null;
    return (await this.connection.call("mcpServer/oauth/login", { name, threadId }))
      .authorizationUrl;
  }

  async #thread() {
    if (this.threadId === "" || !this.threads.threads.has(this.threadId)) {
      this.threadId = await this.threads.start({ ephemeral: true });
      this.emit("changed");
    }
    return this.threadId;
  }
}
