#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| estafette_ipc::fuzzing::run_header(input));
