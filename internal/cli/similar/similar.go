// Package similar finds the name that a user probably meant.
//
// It knows texts only, and must not know what they name.
package similar

import "strings"

// lettersPerTypo is the number of letters of a name for each typo that is tolerated; a shorter name may have one.
const lettersPerTypo = 3

// To returns the most similar of the existing names; empty: none is similar. Of equally similar names it returns the first one.
func To(name string, existing []string) string {
	best, bestDistance := "", max(len(name)/lettersPerTypo, 1)+1
	for _, other := range existing {
		distance := editDistance(name, other)
		if name != "" && strings.HasPrefix(other, name) {
			distance = min(distance, 1)
		}
		if distance < bestDistance && distance < min(len(name), len(other)) {
			best, bestDistance = other, distance
		}
	}
	return best
}

// editDistance returns the number of bytes to insert, delete, replace or exchange with their neighbour to turn a into b.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
