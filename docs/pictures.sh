#!/bin/sh
# Writes the pictures of the documents from committed records: the charts in docs/pictures, and the report page of the
# overview as it looks in a browser. Needs chromium.
set -eu
cd "$(dirname "$0")/.."
UPDATE=1 cargo test --locked -p estafette-cli --test document_pictures charts

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cargo run --locked -p estafette-cli -- report docs/results/overview-quick.json.gz -o "$folder/report.html"
chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --force-color-profile=srgb \
    --blink-settings=preferredColorScheme=1 --user-data-dir="$folder/profile" \
    --window-size=1180,670 --screenshot="$PWD/docs/pictures/report.png" "file://$folder/report.html"
size=$(wc -c < docs/pictures/report.png)
if [ "$size" -gt 204800 ]; then
    echo "docs/pictures/report.png has $size bytes, more than 200 KiB: choose a smaller --window-size" >&2
    exit 1
fi
