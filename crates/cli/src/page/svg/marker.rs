//! The shapes at the points of a line. A colour is never the only difference between two lines.

use super::number;

/// The number of different shapes, and of colours.
pub(super) const COUNT: usize = 8;

/// Returns the path of a shape around a point.
pub(super) fn path(shape: usize, x: f64, y: f64) -> String {
    /// Corners relative to the point.
    const CORNERS: [&[(f64, f64)]; COUNT] = [
        &[],
        &[(-3.4, -3.4), (3.4, -3.4), (3.4, 3.4), (-3.4, 3.4)],
        &[(0.0, -4.6), (4.4, 3.4), (-4.4, 3.4)],
        &[(0.0, -4.8), (4.8, 0.0), (0.0, 4.8), (-4.8, 0.0)],
        &[(0.0, 4.6), (4.4, -3.4), (-4.4, -3.4)],
        &[(-5.0, -1.8), (5.0, -1.8), (5.0, 1.8), (-5.0, 1.8)],
        &[(-1.8, -5.0), (1.8, -5.0), (1.8, 5.0), (-1.8, 5.0)],
        &[(-4.6, 0.0), (3.4, -4.4), (3.4, 4.4)],
    ];
    let corners = CORNERS[shape % COUNT];
    if corners.is_empty() {
        return circle(x, y, 3.8);
    }
    let corner = |(at, (dx, dy)): (usize, &(f64, f64))| {
        format!("{}{} {}", if at == 0 { "M" } else { "L" }, number(x + dx), number(y + dy))
    };
    corners.iter().enumerate().map(corner).chain([String::from("Z")]).collect()
}

/// Returns the path of a circle.
pub(super) fn circle(x: f64, y: f64, radius: f64) -> String {
    let (left, width, radius) = (number(x - radius), number(2.0 * radius), number(radius));
    format!("M{left} {}a{radius} {radius} 0 1 0 {width} 0a{radius} {radius} 0 1 0 -{width} 0Z", number(y))
}
