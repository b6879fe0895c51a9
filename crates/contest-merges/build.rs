//! Says which versions of libraries are built in.

fn main() {
    estafette_contest_build::locked();
}
