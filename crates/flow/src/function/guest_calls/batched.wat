;; A function of the batched ABI whose calls are read from a script in its memory. See script.rs.
(module
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (import "estafette" "send" (func $send (param i32 i32 i32) (result i32)))
  (import "estafette" "send_batch" (func $send_batch (param i32 i32) (result i32)))
  (import "estafette" "reply" (func $reply (param i32 i32) (result i32)))

  ;; INTERPRETER

  (func (export "estafette_buffer") (param i32) (result i32)
    (global.set $buffer_step (call $run (global.get $buffer_step) (i32.const 0x4c00))))
  (func (export "estafette_batch") (param i32 i32 i32)
    (global.set $message_step (call $run (global.get $message_step) (i32.const 0x5000)))
    (drop)))
