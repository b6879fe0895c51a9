//! What stands in the place of [`crate::deflate`] without the feature `deflate`: types without a
//! value.

use std::io;

#[derive(Debug, Clone)]
pub(crate) enum Deflate {}

impl Deflate {
    pub(crate) fn offer(&self) -> String {
        match *self {}
    }

    pub(crate) fn accept<'a>(&self, _: impl Iterator<Item = &'a str>) -> Option<(Agreed, String)> {
        match *self {}
    }

    pub(crate) fn check<'a>(&self, _: impl Iterator<Item = &'a str>) -> Result<Option<Agreed>, String> {
        match *self {}
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Agreed {}

impl Agreed {
    pub(crate) fn compressor(&self) -> Option<Compressor> {
        match *self {}
    }

    pub(crate) fn decompressor(&self) -> Decompressor {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum Compressor {}

impl Compressor {
    #[inline]
    pub(crate) fn suits(&self, _: usize) -> bool {
        match *self {}
    }

    pub(crate) fn compress(&mut self, _: &[u8]) -> io::Result<Vec<u8>> {
        match *self {}
    }
}

#[derive(Debug)]
#[allow(dead_code, reason = "nothing makes one")]
pub(crate) enum DecompressError {
    TooLong,
    Invalid,
}

#[derive(Debug)]
pub(crate) enum Decompressor {}

impl Decompressor {
    pub(crate) fn decompress(&mut self, _: &[u8], _: &mut Vec<u8>, _: usize) -> Result<(), DecompressError> {
        match *self {}
    }

    pub(crate) fn finish(&mut self, _: &mut Vec<u8>, _: usize) -> Result<(), DecompressError> {
        match *self {}
    }
}
