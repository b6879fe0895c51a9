;; Answers each message of a stream with the message itself; the reference's ABI.
(module
  (import "io" "send_websocket_message" (func $reply (param i32 i32)))

  ;; The buffer for a message is 1 MiB at 4096.
  (memory (export "memory") 17)

  ;; Runs once, before the first message: there is nothing to prepare.
  (func (export "_start"))

  ;; The address of a buffer of 1 MiB, into which the host writes a message.
  (func (export "buffer_pointer") (result i32)
    (i32.const 4096))

  ;; Receives one message.
  (func (export "on_message") (param $pointer i32) (param $length i32)
    (call $reply (local.get $pointer) (local.get $length))))
