#!/bin/sh
# Print the home directory of a Java runtime that Spark 4 accepts (17 or later), or say how to get one.
set -u

minimum=17

version_of() {
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

# Prints the home of the Java program $1 when it is recent enough.
usable() {
    [ -x "$1" ] || return 1
    version=$(version_of "$1")
    [ -n "$version" ] && [ "$version" -ge "$minimum" ] || return 1
    home=$("$1" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.home = //p')
    [ -n "$home" ] && echo "$home"
}

seen=""
if [ -n "${JAVA_HOME:-}" ]; then
    usable "$JAVA_HOME/bin/java" && exit 0
    seen="$seen
  JAVA_HOME=$JAVA_HOME is Java ${version:-of unknown version}"
fi
if command -v java >/dev/null 2>&1; then
    usable "$(command -v java)" && exit 0
    seen="$seen
  $(command -v java) is Java ${version:-of unknown version}"
fi
if [ -x /usr/libexec/java_home ]; then
    home=$(/usr/libexec/java_home -v "$minimum+" 2>/dev/null) && usable "$home/bin/java" && exit 0
fi
for home in /usr/lib/jvm/* /opt/homebrew/opt/openjdk* /usr/local/opt/openjdk* "$HOME"/.sdkman/candidates/java/*; do
    usable "$home/bin/java" && exit 0
done

{
    echo "No usable Java found: Spark 4 needs a Java runtime, version $minimum or later.${seen:+ Found:$seen}"
    echo "Get one with, for instance:"
    echo "  Debian, Ubuntu:  sudo apt install openjdk-17-jre-headless"
    echo "  Fedora:          sudo dnf install java-21-openjdk-headless"
    echo "  macOS:           brew install openjdk@17"
    echo "or name one:       JAVA_HOME=/path/to/jdk make ..."
} >&2
exit 1
