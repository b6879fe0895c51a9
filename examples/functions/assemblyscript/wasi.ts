// The parts of WASI preview 1 that the functions use: arguments, the clock, and text output.

@external("wasi_snapshot_preview1", "args_sizes_get")
declare function args_sizes_get(count: usize, bytes: usize): i32;
@external("wasi_snapshot_preview1", "args_get")
declare function args_get(pointers: usize, bytes: usize): i32;
@external("wasi_snapshot_preview1", "clock_time_get")
declare function clock_time_get(clock: i32, precision: i64, time: usize): i32;
@external("wasi_snapshot_preview1", "fd_write")
declare function fd_write(fd: i32, buffers: usize, count: i32, written: usize): i32;
@external("wasi_snapshot_preview1", "proc_exit")
declare function proc_exit(code: i32): void;

const scratch = memory.data(16, 8);

// The arguments. The first one has index 0, as there is no program name before it.
export function args(): string[] {
  args_sizes_get(scratch, scratch + 4);
  const count = load<u32>(scratch);
  const pointers = heap.alloc(4 * count + load<u32>(scratch + 4));
  args_get(pointers, pointers + 4 * count);
  const list: string[] = [];
  for (let index: u32 = 0; index < count; index++) {
    const start = load<u32>(pointers + 4 * index);
    let end = start;
    while (load<u8>(end)) end++;
    list.push(String.UTF8.decodeUnsafe(start, end - start));
  }
  heap.free(pointers);
  return list;
}

// The monotonic clock in nanoseconds.
export function now(): u64 {
  clock_time_get(1, 1, scratch);
  return load<u64>(scratch);
}

// Writes a line to stdout.
export function print(line: string): void {
  write(1, line);
}

// Writes a line to stderr and ends with exit code 1.
export function fail(line: string): void {
  write(2, line);
  proc_exit(1);
}

function write(fd: i32, line: string): void {
  const bytes = String.UTF8.encode(line + "\n");
  store<u32>(scratch, changetype<usize>(bytes));
  store<u32>(scratch + 4, bytes.byteLength);
  fd_write(fd, scratch, 1, scratch + 8);
}

// Writes a line to stderr and traps: the host restarts the function as the YAML file says.
export function trap(line: string): void {
  write(2, line);
  unreachable();
}

// Called by the compiler's own checks. It replaces an import that the host does not have.
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  trap((message ? message : "abort") + " at line " + line.toString());
}
