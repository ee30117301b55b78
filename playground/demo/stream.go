//go:build linux

package demo

import "unicode/utf8"

// terminalStream parses the output of a program to a terminal and determines where other output may be inserted: not within a
// control sequence (ECMA-48: ESC [ … final byte, ESC ] … BEL or ST, ESC and one byte) and not within a UTF-8 character.
type terminalStream struct {
	state   streamState
	missing int // remaining bytes of a character
}

type streamState int

const (
	ground streamState = iota
	afterEscape
	inControl // ESC [
	inString  // ESC ] and similar
	stringEnd // ESC within a string
)

func (s *terminalStream) isComplete() bool { return s.state == ground && s.missing == 0 }

func (s *terminalStream) write(text []byte) {
	const escape, bell = 0x1b, 0x07
	for _, b := range text {
		switch s.state {
		case ground:
			switch {
			case b == escape:
				s.state, s.missing = afterEscape, 0
			case utf8.RuneStart(b):
				s.missing = runeLength(b) - 1
			case s.missing > 0:
				s.missing--
			}
		case afterEscape:
			switch b {
			case '[':
				s.state = inControl
			case ']', 'P', '_', '^', 'X':
				s.state = inString
			default:
				if b < 0x20 || b > 0x2f { // the others are followed by another byte
					s.state = ground
				}
			}
		case inControl:
			if b >= 0x40 && b <= 0x7e {
				s.state = ground
			}
		case inString:
			switch b {
			case bell:
				s.state = ground
			case escape:
				s.state = stringEnd
			}
		case stringEnd:
			s.state = ground
		}
	}
}

// runeLength returns the number of bytes of a UTF-8 character, given its first byte.
func runeLength(first byte) int {
	switch {
	case first >= 0xf0:
		return 4
	case first >= 0xe0:
		return 3
	case first >= 0xc0:
		return 2
	default:
		return 1
	}
}
