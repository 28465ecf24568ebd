;;; ask.el --- asks an app-server of its own, and writes the answer into a buffer -*- lexical-binding: t; -*-
;; Emacs 27.1 or newer.  M-x app-server-ask.

(defvar app-server-program "app-server" "The program that is started.")
(defvar app-server--asked 0 "Requests so far.")
(defvar app-server--answered nil "Request to what is done with its result.")
(defvar app-server--rest "" "The beginning of a line.")

(defun app-server--send (process message)
  (process-send-string process (concat (json-serialize message) "\n")))

(defun app-server--call (process method params done)
  (push (cons (setq app-server--asked (1+ app-server--asked)) done) app-server--answered)
  (app-server--send process `(:id ,app-server--asked :method ,method :params ,params)))

(defun app-server--write (process text)
  (with-current-buffer (process-buffer process)
    (goto-char (point-max))
    (insert text)))

(defun app-server--take (process message)
  (let ((id (plist-get message :id)) (params (plist-get message :params)))
    (pcase (plist-get message :method)
      ('nil (when (plist-get message :error) (error "%S" (plist-get message :error)))
            (funcall (alist-get id app-server--answered) (plist-get message :result)))
      ("item/commandExecution/requestApproval"
       (let ((yes (y-or-n-p (format "Run %s? " (plist-get params :command)))))
         (app-server--send process `(:id ,id :result (:decision ,(if yes "accept" "decline"))))))
      ((guard id)
       (app-server--send process `(:id ,id :error (:code -32601 :message "not offered by this client"))))
      ("item/agentMessage/delta" (app-server--write process (plist-get params :delta)))
      ("turn/completed"
       (app-server--write process (format "\n[%s]\n" (plist-get (plist-get params :turn) :status)))
       (process-send-eof process)))))

(defun app-server--read (process text)
  (let ((lines (split-string (concat app-server--rest text) "\n")))
    (setq app-server--rest (car (last lines)))
    (dolist (line (butlast lines))
      (app-server--take process (json-parse-string line :object-type 'plist :null-object nil)))))

(defun app-server-ask (question)
  "Ask an app-server QUESTION; returns its process, which ends with the answer."
  (interactive "sQuestion: ")
  (let ((process (make-process
                  :name "app-server" :buffer (pop-to-buffer (generate-new-buffer "*app-server*"))
                  :command (list app-server-program "--listen" "stdio://") :connection-type 'pipe
                  :coding 'utf-8 :filter #'app-server--read :sentinel #'ignore
                  :stderr (get-buffer-create " *app-server log*"))))
    (app-server--call
     process "initialize" '(:clientInfo (:name "emacs" :version "1"))
     (lambda (_)
       (app-server--send process '(:method "initialized"))
       (app-server--call
        process "thread/start" `(:cwd ,(expand-file-name default-directory))
        (lambda (started)
          (let ((id (plist-get (plist-get started :thread) :id)))
            (app-server--call process "turn/start"
                              `(:threadId ,id :input [(:type "text" :text ,question)]) #'ignore))))))
    process))

(provide 'ask)
;;; ask.el ends here
