//! A client of the server that speaks its text protocol, as another program would.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use crate::ground::PATIENCE;

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// A message as it arrives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) headers: String,
    pub(crate) payload: Vec<u8>,
    /// Where it may be answered. Empty if nowhere.
    pub(crate) reply: String,
}

impl Client {
    pub(crate) fn connect(port: u16) -> Client {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client { stream: BufReader::new(stream) };
        client.send("CONNECT {\"verbose\":false,\"headers\":true}\r\n");
        client
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Sends a request, and returns the first message that arrives at its inbox.
    pub(crate) fn request(&mut self, subject: &str, payload: &str) -> Received {
        self.send("SUB inbox 1\r\n");
        self.send(&format!("PUB {subject} inbox {}\r\n{payload}\r\n", payload.len()));
        self.next()
    }

    /// Takes the only message of a consumer and gives it back, again and again.
    pub(crate) fn give_back(&mut self, consumer: &str, only: &str, times: usize) {
        self.send("SUB inbox 1\r\n");
        for _ in 0..times {
            self.send(&format!("PUB $JS.API.CONSUMER.MSG.NEXT.{consumer} inbox 1\r\n1\r\n"));
            let taken = self.next();
            assert_eq!(taken.payload, only.as_bytes(), "{taken:?}");
            self.send(&format!("PUB {} 4\r\n-NAK\r\n", taken.reply));
        }
    }

    /// The next message.
    pub(crate) fn next(&mut self) -> Received {
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            let words: Vec<_> = line.split_whitespace().collect();
            let sizes = |count: usize| words[words.len() - count..].iter().map(|word| word.parse::<usize>().unwrap());
            let reply = |without: usize| words.get(3).filter(|_| words.len() > without).copied().unwrap_or_default();
            let (reply, headers, all) = match words.first() {
                Some(&"MSG") => (reply(4), 0, sizes(1).next().unwrap()),
                Some(&"HMSG") => (reply(5), sizes(2).next().unwrap(), sizes(1).next().unwrap()),
                Some(&"PING") => {
                    self.send("PONG\r\n");
                    continue;
                }
                Some(&"INFO" | &"PONG") => continue,
                _ => panic!("{line}"),
            };
            let mut bytes = vec![0; all + 2];
            self.stream.read_exact(&mut bytes).unwrap();
            bytes.truncate(all);
            let payload = bytes.split_off(headers);
            return Received { headers: String::from_utf8(bytes).unwrap(), payload, reply: reply.to_owned() };
        }
    }
}
