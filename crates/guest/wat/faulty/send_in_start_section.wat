;; Sends from its start section, before the host knows its memory.
(module
  (import "estafette" "send" (func $send (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $early (drop (call $send (i32.const 0) (i32.const 0) (i32.const 8))))
  (start $early)
  (func (export "_start")))
