-- Asks in a chat of acp.nvim, allows the command that it shows, and waits for the whole answer.
-- :AcpChat QUESTION. Neovim 0.12 or newer, with acp.nvim; it starts `app-server acp`.
local function typed(keys)
  vim.api.nvim_feedkeys(vim.keycode("A" .. keys .. "<CR><Esc>"), "xt", false)
end

local function wait_for(text)
  local function is_shown()
    local lines = vim.api.nvim_buf_get_lines(0, 0, -1, false)
    return table.concat(lines, "\n"):find(text, 1, true) ~= nil
  end
  assert(vim.wait(60000, is_shown, 50), "not shown: " .. text)
end

vim.api.nvim_create_user_command("AcpChat", function(command)
  local agents = { server = { cmd = { "app-server", "acp" } } }
  require("acp").config({ agents = agents, default_agent = "server" })
  vim.cmd("Acp new-session")
  wait_for("ACP session started")
  typed(command.args)
  wait_for("Type number to choose")
  typed("1")
  wait_for("ä.\n")
end, { nargs = 1 })
