package alerting

import (
	"strings"

	"github.com/serin-dev/serin/internal/chat"
)

// card is the older format of Teams, for its connectors.
type card struct {
	Type       string        `json:"@type"`
	Context    string        `json:"@context"`
	ThemeColor string        `json:"themeColor"`
	Summary    string        `json:"summary"`
	Sections   []cardSection `json:"sections"`
}

type cardSection struct {
	Title    string     `json:"activityTitle"`
	Subtitle string     `json:"activitySubtitle"`
	Facts    []cardFact `json:"facts"`
}

type cardFact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func messageCard(m Message) any {
	facts := make([]cardFact, len(m.Fields)) // encoded as [] instead of null
	for i, f := range m.Fields {
		facts[i] = cardFact(f)
	}
	return card{
		Type: "MessageCard", Context: "http://schema.org/extensions",
		ThemeColor: colours{info: "0076D7", warn: "FFBF00", failed: "FF0000"}.forSeverity(m.Severity),
		Summary:    m.Canary,
		Sections:   []cardSection{{Title: m.Text, Subtitle: m.Canary, Facts: facts}},
	}
}

// wantsAdaptiveCard reports whether a host is that of Teams' workflows, which do not accept message cards.
func wantsAdaptiveCard(host string) bool {
	host = strings.ToLower(host)
	return strings.HasSuffix(host, ".logic.azure.com") || strings.HasSuffix(host, ".powerplatform.com")
}

func adaptiveCard(m Message) any {
	body := []chat.AdaptiveElement{
		{Type: "TextBlock", Text: m.Text, Weight: "Bolder", Wrap: true, Color: colours{info: "Accent", warn: "Warning", failed: "Attention"}.forSeverity(m.Severity)},
		{Type: "TextBlock", Text: m.Canary, Subtle: true, Wrap: true},
	}
	if len(m.Fields) > 0 {
		facts := make([]chat.AdaptiveFact, len(m.Fields))
		for i, f := range m.Fields {
			facts[i] = chat.AdaptiveFact{Title: f.Name, Value: f.Value}
		}
		body = append(body, chat.AdaptiveElement{Type: "FactSet", Facts: facts})
	}
	return chat.NewAdaptiveMessage(chat.NewAdaptiveCard(body))
}

// chatMessage is the format of Google Chat.
type chatMessage struct {
	Cards []chatCard `json:"cards"`
}

type chatCard struct {
	Header   chatHeader    `json:"header"`
	Sections []chatSection `json:"sections"`
}

type chatHeader struct {
	Title    string `json:"title"`
	Subtitle string `json:"subtitle"`
	ImageURL string `json:"imageUrl"`
}

type chatSection struct {
	Widgets []chatWidget `json:"widgets"`
}

type chatWidget struct {
	Paragraph chatText `json:"textParagraph"`
}

type chatText struct {
	Text string `json:"text"`
}

// chatMessageV2 is the format that replaced chatMessage. The parts of a card are the same.
type chatMessageV2 struct {
	Cards []identifiedCard `json:"cardsV2"`
}

type identifiedCard struct {
	ID   string   `json:"cardId"`
	Card chatCard `json:"card"`
}

// googleCardV2 returns the same card in the newer format, for when Google no longer accepts the recorded one.
func googleCardV2(m Message) any {
	return chatMessageV2{Cards: []identifiedCard{{ID: "alert", Card: newChatCard(m)}}}
}

// googleCard returns the recorded format, which Google has deprecated but accepts.
func googleCard(m Message) any { return chatMessage{Cards: []chatCard{newChatCard(m)}} }

// newChatCard returns a card with one section for the text and one for each field. All texts are grey for all severities, as
// recorded.
func newChatCard(m Message) chatCard {
	paragraph := func(before, text string) chatSection {
		return chatSection{Widgets: []chatWidget{{Paragraph: chatText{
			Text: before + "<font color=#848484><strong>" + text + "</strong></font>",
		}}}}
	}
	sections := []chatSection{paragraph("", m.Text)}
	for _, f := range m.Fields {
		sections = append(sections, paragraph(f.Name+"<br>", f.Value))
	}
	return chatCard{
		Header:   chatHeader{Title: "Flagger", Subtitle: m.Canary, ImageURL: "https://flagger.app/favicon.png"},
		Sections: sections,
	}
}
