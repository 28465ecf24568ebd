-- :AppServerAsk QUESTION asks an app-server of its own and writes the answer into a new buffer as it comes.
-- Neovim 0.7 or newer. The program is g:app_server, else app-server.
local asked, answered, job, buffer, rest = 0, {}, nil, nil, ""

local function send(message)
  vim.fn.chansend(job, vim.json.encode(message) .. "\n")
end

local function call(method, params, done)
  asked = asked + 1
  answered[asked] = done
  send({ id = asked, method = method, params = params })
end

local function write(text)
  local last = vim.api.nvim_buf_line_count(buffer)
  local line = vim.api.nvim_buf_get_lines(buffer, last - 1, last, true)[1]
  vim.api.nvim_buf_set_lines(buffer, last - 1, last, true, vim.split(line .. text, "\n"))
end

local function take(message)
  local method, params = message.method, message.params
  if not method then
    assert(not message.error, message.error and message.error.message)
    answered[message.id](message.result)
  elseif method == "item/commandExecution/requestApproval" then
    local choice = vim.fn.confirm("Run " .. (params.command or "it") .. "?", "&yes\n&no", 2)
    send({ id = message.id, result = { decision = choice == 1 and "accept" or "decline" } })
  elseif message.id then
    send({ id = message.id, error = { code = -32601, message = "not offered by this client" } })
  elseif method == "item/agentMessage/delta" then
    write(params.delta)
  elseif method == "turn/completed" then
    write("\n[" .. params.turn.status .. "]")
    vim.b[buffer].app_server_done = true
    vim.fn.jobstop(job)
  end
end

vim.api.nvim_create_user_command("AppServerAsk", function(command)
  vim.cmd("new | setlocal buftype=nofile")
  buffer = vim.api.nvim_get_current_buf()
  job = vim.fn.jobstart({ vim.g.app_server or "app-server", "--listen", "stdio://" }, {
    on_stdout = function(_, pieces)
      -- The first piece ends the line that was begun, the last one begins the next.
      pieces[1] = rest .. pieces[1]
      rest = table.remove(pieces)
      for _, line in ipairs(pieces) do
        take(vim.json.decode(line))
      end
    end,
  })
  local input = { { type = "text", text = command.args } }
  call("initialize", { clientInfo = { name = "neovim", version = "1" } }, function()
    send({ method = "initialized" })
    call("thread/start", { cwd = vim.fn.getcwd() }, function(started)
      call("turn/start", { threadId = started.thread.id, input = input }, function() end)
    end)
  end)
end, { nargs = "+" })
