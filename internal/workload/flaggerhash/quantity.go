package flaggerhash

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// The formats of a quantity.
const (
	decimalSI       = "DecimalSI"
	binarySI        = "BinarySI"
	decimalExponent = "DecimalExponent"
)

// maxInt64Digits is the number of decimal digits that Flagger's library stores in 64 bits.
const maxInt64Digits = 18

// dumpQuantity returns the dump of a resource.Quantity that was parsed from a text such as 100m or 1Gi. Its fields depend on the
// text: a small number is a value and a scale, with the text if it is the shortest form; other numbers are a decimal of
// arbitrary size.
func dumpQuantity(value any) string {
	text, ok := value.(string)
	if !ok {
		if value == nil {
			return dumpedFields(0, 0, "", "", "")
		}
		text = strconv.FormatInt(integerValue(value), 10)
	}
	if text = strings.TrimSpace(text); text == "0" {
		return dumpedFields(0, 0, "", text, decimalSI)
	}
	q := parseQuantity(text)
	if dump, fits := q.dumpInt64(text); fits {
		return dump
	}
	return q.dumpDecimal()
}

func dumpedFields(value int64, scale int, decimal, text, format string) string {
	if decimal == "" {
		decimal = "<nil>"
	}
	return fmt.Sprintf("{i:(resource.int64Amount){value:(int64)%d scale:(resource.Scale)%d} d:(resource.infDecAmount){Dec:(*inf.Dec)%s} s:(string)%s Format:(resource.Format)%s}",
		value, scale, decimal, text, format)
}

// parsedQuantity contains the parts of a quantity.
type parsedQuantity struct {
	negative         bool
	whole, fraction  string // digits, the first without leading zeros but at least one
	format           string
	binary, exponent int // the exponents of 2, in BinarySI, and of 10, otherwise
}

func parseQuantity(text string) parsedQuantity {
	var p parsedQuantity
	if text != "" && (text[0] == '-' || text[0] == '+') {
		p.negative = text[0] == '-'
		text = text[1:]
	}
	text = strings.TrimLeft(text, "0")
	digits := func() string {
		end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(text)
		}
		found := text[:end]
		text = text[end:]
		return found
	}
	if p.whole = digits(); p.whole == "" {
		p.whole = "0"
	}
	if strings.HasPrefix(text, ".") {
		text = text[1:]
		p.fraction = digits()
	}
	p.format, p.binary, p.exponent = quantityFormat(text)
	return p
}

// quantityFormat parses the suffix of a quantity.
func quantityFormat(text string) (format string, binary, exponent int) {
	powers := map[string]int{"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
	thousands := map[string]int{"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
	if power, found := powers[text]; found {
		return binarySI, power, 0
	}
	if power, found := thousands[text]; found {
		return decimalSI, 0, power
	}
	exponent, _ = strconv.Atoi(strings.TrimLeft(text, "eE")) // the API server stores only valid quantities
	return decimalExponent, 0, exponent
}

// dumpInt64 returns the dump of a quantity that fits into 64 bits.
func (p parsedQuantity) dumpInt64(text string) (dump string, fits bool) {
	room, scale, factor := maxInt64Digits-len(p.whole)-len(p.fraction), p.exponent, int64(1)
	if p.format == binarySI {
		if p.fraction != "" {
			return "", false
		}
		// 2^20 has about six decimal digits.
		room, factor = 15-len(p.whole)-int(float32(p.binary)*3/10)-1, int64(1)<<p.binary
	}
	scale -= len(p.fraction)
	if room < 0 || scale < -9 {
		return "", false
	}
	digits := p.whole + p.fraction
	value, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || value > math.MaxInt64/factor {
		return "", false
	}
	storesText := scale%3 == 0 && !strings.HasSuffix(digits, "000") && digits[0] != '0'
	if p.format == binarySI {
		storesText = p.binary%10 == 0 && value&7 != 0
	}
	if !storesText {
		text = ""
	}
	value *= factor
	if p.negative {
		value = -value
	}
	return dumpedFields(value, scale, "", text, p.format), true
}

// dumpDecimal returns the dump of a decimal of arbitrary size, rounded up to nine places.
func (p parsedQuantity) dumpDecimal() string {
	unscaled, _ := new(big.Int).SetString(p.whole+p.fraction, 10)
	places := len(p.fraction) - p.exponent
	unscaled.Lsh(unscaled, uint(p.binary))
	ten := func(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }
	if unscaled.Sign() != 0 {
		const nano = 9
		if places <= nano {
			unscaled.Mul(unscaled, ten(nano-places))
		} else {
			remainder := new(big.Int)
			unscaled.QuoRem(unscaled, ten(places-nano), remainder)
			if remainder.Sign() != 0 {
				unscaled.Add(unscaled, big.NewInt(1))
			}
		}
		places = nano
	}
	format := p.format
	if format == binarySI {
		if limit := new(big.Int).Mul(big.NewInt(math.MaxInt64), ten(places)); unscaled.Cmp(limit) > 0 {
			unscaled, places = big.NewInt(math.MaxInt64), 0
		}
		if unscaled.Sign() > 0 && unscaled.Cmp(ten(max(0, places))) < 0 {
			format = decimalSI
		}
	}
	words := "<nil>"
	if unscaled.Sign() != 0 {
		var parts []string
		mask := new(big.Int).SetUint64(math.MaxUint64)
		for rest := new(big.Int).Set(unscaled); rest.Sign() > 0; rest.Rsh(rest, 64) {
			parts = append(parts, new(big.Int).And(rest, mask).String())
		}
		words = "[" + strings.Join(parts, " ") + "]"
	}
	return dumpedFields(0, 0, fmt.Sprintf("{unscaled:(big.Int){neg:(bool)%t abs:(big.nat)%s} scale:(inf.Scale)%d}",
		p.negative && unscaled.Sign() != 0, words, places), "", format)
}
