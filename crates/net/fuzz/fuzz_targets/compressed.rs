#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| estafette_net::fuzzing::compressed(input));
