;;; acp_ask.el --- asks an agent of ACP by acp.el, allows what it asks, and prints the answer -*- lexical-binding: t; -*-
;; Emacs 28 or newer, with acp.el on the load path.  (acp-ask "app-server" '("acp") QUESTION)

(require 'acp)

(defun acp-ask (command words question)
  "Start the agent COMMAND with WORDS, ask it QUESTION, and print the answer."
  (let* ((buffer (generate-new-buffer "*acp*"))
         (client (acp-make-client :command command :command-params words :context-buffer buffer))
         (answer "") (done nil))
    (cl-flet ((ask (request)
                (let ((found (acp-send-request :client client :request request :buffer buffer :sync t)))
                  found)))
      (acp-subscribe-to-notifications
       :client client :buffer buffer
       :on-notification
       (lambda (notification)
         (let ((update (map-nested-elt notification '(params update))))
           (when (equal (map-elt update 'sessionUpdate) "agent_message_chunk")
             (setq answer (concat answer (map-nested-elt update '(content text))))))))
      (acp-subscribe-to-requests
       :client client :buffer buffer
       :on-request
       (lambda (request)
         (let ((allowed (seq-find (lambda (option) (equal (map-elt option 'kind) "allow_once"))
                                  (map-nested-elt request '(params options)))))
           (acp-send-response
            :client client
            :response (acp-make-session-request-permission-response
                       :request-id (map-elt request 'id)
                       :option-id (map-elt allowed 'optionId))))))
      (ask (acp-make-initialize-request :protocol-version 1))
      (let ((session (map-elt (ask (acp-make-session-new-request
                                    :cwd (expand-file-name default-directory) :mcp-servers []))
                              'sessionId)))
        (acp-send-request
         :client client :buffer buffer
         :request (acp-make-session-prompt-request
                   :session-id session :prompt (vector `((type . "text") (text . ,question))))
         :on-success (lambda (_) (setq done t))
         :on-failure (lambda (failure &rest _) (error "%S" failure)))
        (while (not done) (accept-process-output nil 1)))
      (princ answer)
      (acp-shutdown :client client))))

(provide 'acp_ask)
;;; acp_ask.el ends here
