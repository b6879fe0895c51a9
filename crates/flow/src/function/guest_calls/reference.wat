;; A function of the reference's ABI whose calls are read from a script in its memory. See script.rs.
(module
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (import "io" "send_message_to_topic_idx" (func $io_send (param i32 i32 i32)))
  (import "io" "send_websocket_message" (func $io_reply (param i32 i32)))

  ;; INTERPRETER

  (func $send (param i32 i32 i32) (result i32)
    (call $io_send (local.get 0) (local.get 1) (local.get 2))
    (i32.const 0))
  (func $send_batch (param i32 i32) (result i32) (unreachable))
  (func $reply (param i32 i32) (result i32)
    (call $io_reply (local.get 0) (local.get 1))
    (i32.const 0))

  (func (export "buffer_pointer") (result i32)
    (global.set $buffer_step (call $run (global.get $buffer_step) (i32.const 0x4c00))))
  (func (export "on_message") (param i32 i32)
    (global.set $message_step (call $run (global.get $message_step) (i32.const 0x5000)))
    (drop)))
