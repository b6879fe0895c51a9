;; Imports what no host has.
(module
  (import "estafette" "launch" (func (param i32)))
  (memory (export "memory") 1)
  (func (export "_start")))
