use proptest::prelude::*;

use super::super::Decoder;
use super::super::pieces::{self, Found};
use super::*;

const LIMIT: usize = 100_000;

/// A decoder that has completed its handshake.
fn decoder(side: Side) -> WebSocketDecoder {
    let mut decoder = WebSocketDecoder::new(side, Opening::requested(Default::default()), LIMIT, 20);
    decoder.opening = None;
    decoder
}

/// Decodes a stream that arrives in pieces of these sizes, after the handshake.
fn read(side: Side, stream: &[u8], pieces: &[usize]) -> (Vec<Found>, Result<(), Violation>) {
    let (found, result) = pieces::read(Decoder::WebSocket(Box::new(decoder(side))), stream, pieces);
    (found, result.map_err(|fault| fault.what))
}

/// A frame with an arbitrary first byte.
fn frame(first: u8, payload: &[u8], key: Option<[u8; 4]>) -> Vec<u8> {
    let mut bytes = header(Opcode::Binary, payload.len(), key).bytes().to_vec();
    bytes[0] = first;
    let at = bytes.len();
    bytes.extend_from_slice(payload);
    if let Some(key) = key {
        mask::apply(&mut bytes[at..], key, 0);
    }
    bytes
}

fn refused(stream: &[u8]) -> Violation {
    read(Side::Client, stream, &[]).1.unwrap_err()
}

#[test]
fn the_rfcs_examples() {
    let hello = [Found::Message(Kind::Text, b"Hello".to_vec())];
    assert_eq!(read(Side::Client, b"\x81\x05Hello", &[]).0, hello);
    assert_eq!(read(Side::Server, b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", &[]).0, hello);
    assert_eq!(read(Side::Client, b"\x01\x03Hel\x80\x02lo", &[]).0, hello);
    assert_eq!(read(Side::Client, b"\x89\x05Hello", &[]).0, [Found::Ping(b"Hello".to_vec())]);
    let long = frame(0x82, &[7; 65536], None);
    assert_eq!(long[..10], [0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(read(Side::Client, &long, &[]).0, [Found::Message(Kind::Binary, vec![7; 65536])]);
}

#[test]
fn protocol_violations_are_rejected_with_their_code() {
    let key = Some([1, 2, 3, 4]);
    for (stream, code) in [
        (frame(0xc2, b"", None), 1002),                                    // a reserved bit
        (frame(0x83, b"", None), 1002),                                    // a reserved opcode
        (frame(0x8b, b"", None), 1002),                                    // a reserved opcode of control
        (frame(0x09, b"", None), 1002),                                    // a ping in parts
        (frame(0x89, &[0; 126], None), 1002),                              // a ping that is too long
        (frame(0x80, b"", None), 1002),                                    // a continuation of nothing
        ([frame(0x01, b"", None), frame(0x81, b"", None)].concat(), 1002), // a message within a message
        (frame(0x82, b"", key), 1002),                                     // masked by a server
        (vec![0x82, 126, 0, 125], 1002),                                   // lengths in too many bytes
        (vec![0x82, 127, 0, 0, 0, 0, 0, 0, 255, 255], 1002),
        (vec![0x82, 127, 128, 0, 0, 0, 0, 0, 0, 0], 1002), // a negative length
        (frame(0x81, b"\xff", None), 1007),
        (frame(0x81, b"\xe2\x82", None), 1007), // text that ends within a character
        ([frame(0x01, b"\xe2\x82", None), frame(0x80, b"", None)].concat(), 1007),
        (frame(0x88, b"\x03", None), 1002),     // half a code
        (frame(0x88, b"\x03\xed", None), 1002), // 1005 may not be sent
        (frame(0x88, b"\x03\xe8\xff", None), 1007),
        (vec![0x82, 127, 0, 0, 0, 0, 0, 1, 134, 161], 1009), // over the limit, by its header alone
        ([frame(0x02, &[0; 60_000], None), vec![0x00, 126, 0xff, 0xff]].concat(), 1009),
        ([frame(0x02, b"", None), frame(0x00, b"", None).repeat(20)].concat(), 1009),
    ] {
        let what = refused(&stream);
        assert_eq!(what.code(), code, "{what}: {:?}", &stream[..stream.len().min(20)]);
    }
    assert_eq!(read(Side::Server, &frame(0x82, b"", None), &[]).1.unwrap_err().code(), 1002);
}

#[test]
fn invalid_text_is_rejected_at_its_first_wrong_byte_before_the_frame_is_complete() {
    let mut decoder = decoder(Side::Client);
    let mut begun = b"\x81\x0a\xce\xba\xff".to_vec();
    assert_eq!(decoder.decode(&mut begun[..4]).unwrap().consumed, 2);
    assert_eq!(decoder.decode(&mut begun[2..]).unwrap_err().what, Violation::NotUtf8);
}

#[test]
fn valid_closing_codes_are_those_of_the_registry() {
    for code in 0..=5000_u16 {
        let valid = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
        assert_eq!(Close::parse(&code.to_be_bytes()).is_ok(), valid, "{code}");
    }
    let long = Close { code: Some(1000), reason: "ä".repeat(80) };
    let payload = long.payload();
    assert_eq!(payload.len(), 124);
    assert!(Close::parse(&payload).is_ok());
}

#[test]
fn data_after_a_closing_frame_is_ignored() {
    let stream = [frame(0x88, b"\x03\xe8bye", None), frame(0x82, b"late", None), vec![0xff; 9]].concat();
    assert_eq!(
        read(Side::Client, &stream, &[]),
        (vec![Found::Close(Close { code: Some(1000), reason: "bye".to_owned() })], Ok(()))
    );
}

/// Fragmented messages, with control frames between the fragments.
fn messages() -> impl Strategy<Value = Vec<(Kind, Vec<Vec<u8>>, bool)>> {
    let parts = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..6);
    let text = prop::collection::vec("\\PC{0,30}", 1..6)
        .prop_map(|parts| parts.into_iter().map(String::into_bytes).collect::<Vec<_>>());
    let binary = (Just(Kind::Binary), parts, any::<bool>());
    prop::collection::vec(prop_oneof![binary, (Just(Kind::Text), text, any::<bool>())], 0..6)
}

proptest! {
    #[test]
    fn messages_do_not_depend_on_how_the_stream_is_cut(
        messages in messages(), server: bool, key: [u8; 4], pieces in prop::collection::vec(1_usize..40, 0..200),
    ) {
        let (side, key) = if server { (Side::Server, Some(key)) } else { (Side::Client, None) };
        let (mut stream, mut expected) = (Vec::new(), Vec::new());
        for (kind, parts, pings) in &messages {
            for (i, part) in parts.iter().enumerate() {
                let last = if i + 1 == parts.len() { 0x80 } else { 0 };
                let opcode = if i == 0 { Opcode::from(*kind) } else { Opcode::Continuation };
                stream.extend(frame(last | opcode as u8, part, key));
                if *pings && last == 0 {
                    stream.extend(frame(0x89, b"ping", key));
                    expected.push(Found::Ping(b"ping".to_vec()));
                }
            }
            expected.push(Found::Message(*kind, parts.concat()));
        }
        prop_assert_eq!(read(side, &stream, &pieces), (expected, Ok(())));
    }

    #[test]
    fn arbitrary_bytes_give_the_same_result_however_they_are_cut(
        bytes in prop::collection::vec(any::<u8>(), 0..100), server: bool, pieces in prop::collection::vec(1_usize..5, 0..60),
    ) {
        let side = if server { Side::Server } else { Side::Client };
        prop_assert_eq!(read(side, &bytes, &pieces), read(side, &bytes, &[]));
    }
}

#[cfg(feature = "deflate")]
mod compressed {
    use super::*;
    use crate::deflate::{Agreed, Deflate};

    fn agreed() -> Agreed {
        Deflate::default().accept(["permessage-deflate"].into_iter()).unwrap().0
    }

    fn compress(message: &[u8]) -> Vec<u8> {
        agreed().compressor().unwrap().compress(message).unwrap()
    }

    fn read(stream: &[u8], pieces: &[usize]) -> (Vec<Found>, Result<(), Violation>) {
        let decoder = WebSocketDecoder::compressed(Side::Server, LIMIT, 20);
        let (found, result) = pieces::read(Decoder::WebSocket(Box::new(decoder)), stream, pieces);
        (found, result.map_err(|fault| fault.what))
    }

    const KEY: Option<[u8; 4]> = Some([1, 2, 3, 4]);

    #[test]
    fn a_client_compresses_as_in_the_rfcs_example() {
        let hello = compress(b"Hello");
        let header = compressed_header(Opcode::Text, hello.len(), None);
        assert_eq!([header.bytes(), &hello].concat(), [0xc1, 7, 0xf2, 0x48, 0xcd, 0xc9, 0xc9, 7, 0]);
    }

    #[test]
    fn compressed_messages_are_read_however_the_stream_is_cut() {
        let (text, bytes) = ("grün 漢字 🦀".repeat(50), vec![0xff; 70_000]);
        let (first, second) = (compress(text.as_bytes()), compress(&bytes));
        let cut = first.len() / 2;
        let stream = [
            frame(0x41, &first[..cut], KEY),
            frame(0x89, b"ping", KEY),
            frame(0x00, b"", KEY),
            frame(0x80, &first[cut..], KEY),
            frame(0x82, b"uncompressed", KEY),
            frame(0xc1, &[0], KEY),
        ]
        .concat();
        let expected = [
            Found::Ping(b"ping".to_vec()),
            Found::Message(Kind::Text, text.into_bytes()),
            Found::Message(Kind::Binary, b"uncompressed".to_vec()),
            Found::Message(Kind::Text, Vec::new()),
        ];
        for size in [1, 2, 3, 7, 50, stream.len()] {
            let (found, result) = read(&stream, &vec![size; stream.len() / size]);
            assert_eq!((found.as_slice(), result), (&expected[..], Ok(())), "pieces of {size}");
        }
        let (found, _) = read(&frame(0xc2, &second, KEY), &[5, 9]);
        assert!(found == [Found::Message(Kind::Binary, bytes)]);
    }

    #[test]
    fn violations_of_compressed_messages_are_rejected_with_their_code() {
        let too_long = compress(&vec![0; LIMIT + 1]);
        let empty_blocks = [0, 0, 0, 0xff, 0xff].repeat(LIMIT / 4);
        let part = |first| frame(first, &empty_blocks[..LIMIT / 2], KEY);
        for (stream, code) in [
            (frame(0xc9, b"", KEY), 1002),                                   // a ping
            (frame(0xa1, b"", KEY), 1002),                                   // another reserved bit
            ([frame(0x41, b"", KEY), frame(0xc0, b"", KEY)].concat(), 1002), // a continuation
            (frame(0xc1, &[0xff], KEY), 1007),                               // not DEFLATE
            (frame(0xc1, &compress(b"\xff"), KEY), 1007),                    // not UTF-8
            (frame(0xc1, &compress(&"🦀".as_bytes()[..2]), KEY), 1007),      // cut within a character
            (frame(0xc2, &too_long, KEY), 1009),
            ([frame(0x42, &too_long[..9], KEY), frame(0x80, &too_long[9..], KEY)].concat(), 1009),
            (frame(0xc2, &empty_blocks, KEY), 1009), // more bytes than any message needs
            ([part(0x42), part(0x00), part(0x00)].concat(), 1009),
        ] {
            let violation = read(&stream, &[]).1.unwrap_err();
            assert_eq!(violation.code(), code, "{violation}");
        }
    }

    #[test]
    fn without_an_agreement_compressed_messages_are_rejected() {
        assert_eq!(refused(&frame(0xc1, &compress(b"Hello"), None)).code(), 1002);
    }
}
